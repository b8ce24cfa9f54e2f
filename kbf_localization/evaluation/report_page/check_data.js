// The data of a map check's page, its packed arrays opened.
const data = (() => {
  const raw = JSON.parse(byId("data").textContent);
  return {
    plan: raw.plan, lacking: raw.lacking, mapPoses: doubles(raw.mapPoses), path: doubles(raw.path), truth: null,
    values: Object.fromEntries(Object.entries(raw.values).map(([name, packed]) => [name, floats(packed)])),
    stretches: raw.stretches.map((stretch) => ({ ...stretch, poses: doubles(stretch.poses) })), pairs: raw.pairs,
  };
})();
