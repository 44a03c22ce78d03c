import assert from "node:assert/strict";
import test from "node:test";
import { Store } from "../../labkit/telemetry/page/store.mjs";
import { busiest, layout, linksAt, rateText, sentence } from "../../labkit/cluster/page/traffic.mjs";

// Two hosts with links of 8 Mbit/s; from 0.5 s on host 0 sends 1 MB/s to host 1.
const store = new Store();
const lines = [{ source: "links", metrics: ["sent", "received"], devices: [{ key: "host 0" }, { key: "host 1" }] }];
for (let tick = 0; tick <= 10; tick += 1) {
  const moved = 7_000 + Math.max(0, tick - 5) * 100_000;
  lines.push([0, tick / 10, [moved, 0], [0, moved]]);
}
lines.forEach((line) => store.take(line));
const links = ["host 0", "host 1"].map((name) => ({ name, rate: 8e6 }));
const shown = { table: store.tables[0], links };

test("a rate is that of the last three samples, and bytes are counted from the first", () => {
  const [from, to] = linksAt(shown, 1.0);
  assert.ok(Math.abs(from.sent.share - 1) < 1e-9);
  assert.equal(from.sent.bytes, 500_000);
  assert.deepEqual([from.received.speed, to.received.speed], [0, from.sent.speed]);
  assert.equal(linksAt(shown, 0.4)[0].sent.speed, 0);
  assert.equal(linksAt(shown, 0)[0].sent.speed, 0);
});

test("a sentence names the links that are full and idle", () => {
  assert.match(sentence(linksAt(shown, 1.0), 1.0), /full \(70 % or more\): the link from host 0, to host 1; none is idle/);
  assert.match(sentence(linksAt(shown, 0.3), 0.3), /no link carries data/);
  assert.ok(busiest(shown) >= 0.8);
  assert.equal(rateText(39_800_000), "39.8\u00a0Mbit/s");
});

test("racks have a switch each, and a band to the switch that joins them", () => {
  const hosts = [0, 0, 1, 1].map((rack, at) => ({ name: `host ${at}`, rack, ranks: [at] }));
  const { boxes, bands } = layout({ hosts, racks: 2 });
  assert.deepEqual(bands.map(({ name }) => name), ["host 0", "host 1", "host 2", "host 3", "rack 0", "rack 1"]);
  assert.equal(boxes.length, 4 + 2 + 1);
  assert.equal(layout({ hosts, racks: 1 }).boxes.length, 5);
});
