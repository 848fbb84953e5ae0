"""Fields of Kubernetes v1 that rayched knows of and does not use: a manifest may carry them, they are left out with a warning.

By the name of the message whose JSON object may hold them. What is in neither this table nor the message is a mistake.

Source: the API reference of Kubernetes 1.34.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

UNUSED_FIELDS: Final[Mapping[str, frozenset[str]]] = {
    name: frozenset(fields.split())
    for name, fields in {
        "ObjectMeta": "clusterName managedFields selfLink",
        "PodSpec": """
            automountServiceAccountToken dnsConfig ephemeralContainers hostAliases hostIPC hostPID hostUsers hostnameOverride
            imagePullSecrets os readinessGates resourceClaims serviceAccount setHostnameAsFQDN
            shareProcessNamespace workloadRef
            """,
        "Container": """
            envFrom resizePolicy restartPolicyRules stdin stdinOnce terminationMessagePath terminationMessagePolicy tty
            volumeDevices
            """,
        "EnvVarSource": "configMapKeyRef fileKeyRef resourceFieldRef secretKeyRef",
        "LifecycleHandler": "tcpSocket",
        "PodSecurityContext": """
            appArmorProfile fsGroupChangePolicy seLinuxChangePolicy seLinuxOptions seccompProfile supplementalGroupsPolicy sysctls
            windowsOptions
            """,
        "Probe": "grpc",
        "SecurityContext": """
            allowPrivilegeEscalation appArmorProfile capabilities privileged procMount readOnlyRootFilesystem seLinuxOptions
            seccompProfile windowsOptions
            """,
        "Volume": """
            awsElasticBlockStore azureDisk azureFile cephfs cinder configMap csi downwardAPI ephemeral fc flexVolume flocker
            gcePersistentDisk gitRepo glusterfs image iscsi nfs persistentVolumeClaim photonPersistentDisk portworxVolume
            projected quobyte rbd scaleIO secret storageos vsphereVolume
            """,
        "VolumeMount": "mountPropagation recursiveReadOnly subPathExpr",
        "ResourceRequirements": "claims",
        "PodStatus": """
            allocatedResources ephemeralContainerStatuses extendedResourceClaimStatus hostIPs observedGeneration podIPs
            resourceClaimStatuses resources
            """,
        "ContainerStatus": """
            allocatedResourcesStatus stopSignal user volumeMounts
            """,
        "ContainerStateTerminated": "containerID",
        "NodeSpec": "configSource externalID podCIDRs",
        "NodeStatus": """
            config daemonEndpoints declaredFeatures features runtimeHandlers volumesAttached volumesInUse
            """,
        "NodeSystemInfo": "swap",
        "NamespaceStatus": "conditions",
        "Service": "status",
        "ServiceSpec": """
            allocateLoadBalancerNodePorts clusterIPs externalIPs externalName externalTrafficPolicy healthCheckNodePort
            internalTrafficPolicy ipFamilies ipFamilyPolicy loadBalancerClass loadBalancerIP loadBalancerSourceRanges
            publishNotReadyAddresses sessionAffinity sessionAffinityConfig trafficDistribution
            """,
        "ServicePort": "appProtocol",
        "ReplicaSetStatus": "terminatingReplicas",
        "JobSpec": "backoffLimitPerIndex managedBy maxFailedIndexes podFailurePolicy successPolicy",
        "JobStatus": "failedIndexes",
        "ReplicationController": "status",
        "StatefulSet": "status",
        "StatefulSetSpec": """
            ordinals persistentVolumeClaimRetentionPolicy revisionHistoryLimit updateStrategy volumeClaimTemplates
            """,
        "PodGroupSpec": "workloadRef",
        "PodGroupStatus": "resourceClaimStatuses",
        "Event": "action eventTime related reportingComponent reportingInstance series",
        "ObjectReference": "fieldPath",
    }.items()
}
