{{- define "rayched.name" -}}
{{ printf "%s-rayched" .Release.Name }}
{{- end }}

{{- define "rayched.labels" -}}
app.kubernetes.io/name: rayched
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "rayched.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "rayched.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "rayched.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 7420
runAsGroup: 7420
fsGroup: 7420
seccompProfile:
  type: RuntimeDefault
{{- end }}
