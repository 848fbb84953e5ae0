// A decision as it is drawn: what rejected nodes, how the others' totals lie, what differs from then. Pure.

// Segments of "of N nodes": the feasible ones, then the rejected ones by plugin and reason. They sum to the nodes.
export function segments(explanation) {
  const found = [{ kind: "feasible", label: "feasible", count: explanation.feasible, index: -1 }];
  explanation.rejections.forEach((one, index) => {
    found.push({ kind: "rejected", label: `${one.plugin}: ${one.reason}`, count: one.count, index });
  });
  const told = found.reduce((sum, one) => sum + one.count, 0);
  if (explanation.nodes > told) {
    found.push({ kind: "unasked", label: explanation.rejected || "not asked", count: explanation.nodes - told, index: -2 });
  }
  return found.filter((one) => one.count > 0 || one.kind === "feasible");
}

// Dots on an axis of totals, the highest total right: {total, count, best}. `best`: these nodes are drawn between.
export function dots(explanation) {
  const highest = explanation.totals[0]?.[0];
  return explanation.totals.map(([total, count]) => ({ total, count, best: total === highest }));
}

// Nodes that were the best ones then, with their totals then and now; `differs` where both are known and are not equal.
export function thenAndNow(explanation) {
  const now = new Map(explanation.verdicts.map((verdict) => [verdict.node, verdict.total]));
  return (explanation.decision?.best ?? []).map(([node, then]) => {
    const total = now.get(node) ?? null;
    return { node, then, now: total, differs: then !== null && total !== then };
  });
}

// Moments of a pod with the seconds since the one before.
export function moments(pod) {
  const found = [{ what: "created", at: pod.created }];
  for (const one of pod.conditions) {
    if (one.at !== null && one.status === "True") found.push({ what: one.type, at: one.at });
    if (one.at !== null && one.status === "False" && one.type === "PodScheduled") {
      found.push({ what: `not scheduled: ${one.reason}`, at: one.at });
    }
  }
  if (pod.started !== null) found.push({ what: "started", at: pod.started });
  if (pod.deleted !== null) found.push({ what: "deletion", at: pod.deleted });
  if (pod.ended !== null) found.push({ what: "ended", at: pod.ended });
  found.sort((a, b) => a.at - b.at);
  return found.map((one, number) => ({ ...one, after: number ? one.at - found[number - 1].at : 0 }));
}
