// Samples of the scheduler over time, and what is drawn of them. Pure.

export const RESULTS = ["scheduled", "unschedulable", "error"];
export const LATENCIES = ["attempt p50", "attempt p99", "wait p50", "wait p99"];
export const QUEUES = ["active", "backoff", "unschedulable", "gated", "in_flight"];
const FINE_MAX = 300;
const COARSE_MAX = 360;
const COARSE_SECONDS = 10;

// A sample: time, attempts a second by result (null: not known), pods by queue, seconds by quantile (null: no pod was bound).
export class Samples {
  fine = [];
  coarse = [];

  begin(history) {
    this.fine = history.fine;
    this.coarse = history.coarse;
  }

  add(sample) {
    const last = this.fine.at(-1);
    if (last && sample[0] <= last[0]) return;
    push(this.fine, sample, FINE_MAX);
    const before = this.coarse.at(-1);
    if (!before || sample[0] - before[0] >= COARSE_SECONDS) push(this.coarse, sample, COARSE_MAX);
  }

  // Those of the last so many seconds.
  over(seconds, now) {
    const from = now - seconds;
    return (seconds <= FINE_MAX ? this.fine : this.coarse).filter((sample) => sample[0] >= from);
  }
}

function push(ring, sample, most) {
  ring.push(sample);
  if (ring.length > most) ring.shift();
}

export const attemptsOf = (sample) => sample.slice(1, 1 + RESULTS.length);
export const pendingOf = (sample) => sample.slice(1 + RESULTS.length, 1 + RESULTS.length + QUEUES.length);
// In milliseconds.
export const latencyOf = (sample) => sample.slice(1 + RESULTS.length + QUEUES.length).map((seconds) => (seconds === null ? null : seconds * 1000));

// Upper edges of layers that stand on each other, [layer][sample]; what is not known is null in all of them.
export function stacked(values) {
  const layers = values[0]?.length ?? 0;
  const edges = Array.from({ length: layers }, () => []);
  for (const row of values) {
    let sum = 0;
    const known = row.every((value) => value !== null);
    for (let layer = 0; layer < layers; layer++) {
      sum += row[layer] ?? 0;
      edges[layer].push(known ? sum : null);
    }
  }
  return edges;
}

// The end of an axis: 1, 2 or 5 times a power of ten, at least `most`.
export function niceEnd(most) {
  if (!(most > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((end) => end >= most - 1e-9);
}

// The pauses between terms: {from, until, after}, in seconds; `until` is null while nobody leads.
export function pauses(terms) {
  const found = [];
  terms.forEach((term, number) => {
    if (term.until === null) return;
    const next = terms[number + 1];
    if (!next) found.push({ from: term.until, until: null, after: term.epoch });
    else if (next.since > term.until) found.push({ from: term.until, until: next.since, after: term.epoch });
  });
  return found;
}

// How many writes were fenced, by the epoch of the term in which their replica had led last when they were seen.
export function fencedByEpoch(terms, fenced) {
  const found = new Map();
  for (const [time, replica, count] of fenced) {
    const term = terms.findLast((one) => one.holder === replica && one.since <= time);
    if (term) found.set(term.epoch, (found.get(term.epoch) ?? 0) + count);
  }
  return found;
}

// Replicas in the order in which they first led.
export function lanes(terms) {
  return [...new Set(terms.map((term) => term.holder))];
}
