import assert from "node:assert/strict";
import test from "node:test";
import { FrameReader } from "../../../rayched/page/static/sse.js";
import { age, amount, csv, share, shown } from "../../../rayched/page/static/text.js";
import { address, parse } from "../../../rayched/page/static/route.js";

test("frames come whole from whatever pieces", () => {
  const text = ': quiet\n\nevent: usage\nid: 7\ndata: {"a":1}\n\nevent: x\ndata: one\ndata: two\n\n';
  const wanted = [{ event: "usage", id: "7", data: '{"a":1}' }, { event: "x", id: "", data: "one\ntwo" }];
  for (let size = 1; size <= text.length; size++) {
    const reader = new FrameReader();
    const found = [];
    for (let at = 0; at < text.length; at += size) found.push(...reader.push(text.slice(at, at + size)));
    assert.deepEqual(found, wanted);
  }
});

test("what is not printable, and what turns writing around, is shown as its escape", () => {
  assert.equal(shown("a\u001b[2Jb"), "a\\u001b[2Jb");
  assert.equal(shown("\u202edne\u2066"), "\\u202edne\\u2066");
  assert.equal(shown("two\nlines\t\r"), "two\\nlines\\t\\r");
  assert.equal(shown("\u{e0001}\u200b\u2028\u00a0"), "\\U000e0001\\u200b\\u2028\\u00a0");
  assert.equal(shown("Ünï ☂ <b>&amp;</b>"), "Ünï ☂ <b>&amp;</b>");
  assert.equal(shown(5), "5");
});

test("ages and amounts are those of the command line", () => {
  const ages = [0, 42, 119, 120, 190, 600, 10_799, 10_800, 18_061, 172_799, 172_800, 273_600, 691_200];
  assert.deepEqual(ages.map(age), ["0s", "42s", "119s", "2m", "3m10s", "10m", "179m", "3h", "5h1m", "47h", "2d", "3d4h", "8d"]);
  assert.deepEqual([amount("cpu", 1500), amount("cpu", 16_000), amount("pods", 110)], ["1.5", "16", "110"]);
  assert.deepEqual([amount("memory", 64 * 2 ** 30), amount("memory", 512 * 2 ** 20), amount("memory", 5)], ["64Gi", "512Mi", "5"]);
  assert.deepEqual([share(999), share(1000), share(4)], ["99%", "100%", "0%"]);
});

// What reads RFC 4180 again.
function parsed(text) {
  const rows = [[]];
  let field = "";
  let inside = false;
  for (let at = 0; at < text.length; at++) {
    const c = text[at];
    if (inside) {
      if (c === '"' && text[at + 1] === '"') field += text[++at];
      else if (c === '"') inside = false;
      else field += c;
    } else if (c === '"') inside = true;
    else if (c === "," || c === "\r") {
      rows.at(-1).push(field);
      field = "";
      if (c === "\r") {
        at++;
        rows.push([]);
      }
    } else field += c;
  }
  return rows.slice(0, -1);
}

test("a table as CSV is read again as it was, and no cell is a formula", () => {
  assert.deepEqual(parsed(csv([["a", 'say "hi", you', "x\r\ny"], [1, -2.5, null]])), [["a", 'say "hi", you', "x\r\ny"], ["1", "-2.5", ""]]);
  assert.deepEqual(parsed(csv([["=1+1", "@x", "-x", "+x"]])), [["'=1+1", "'@x", "'-x", "'+x"]]);
});

test("an address gives its view back, filters included", () => {
  for (const [view, parts, query] of [["", [], {}], ["pod", ["team a", "x/y?&#"], {}], ["nodes", [], { by: "cpu", select: "a in (b, c)" }], ["events", [], { text: "50% &=" }]]) {
    assert.deepEqual(parse(address(view, parts, query)), { view, parts, query });
  }
  assert.equal(address("queue", [], { held: "", namespace: null }), "#/queue");
  assert.deepEqual(parse("#/pod/%E0%A4%A/x"), { view: "pod", parts: ["%E0%A4%A", "x"], query: {} });
  assert.deepEqual(parse(""), { view: "", parts: [], query: {} });
});
