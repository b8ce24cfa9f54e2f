// The page's data, its packed arrays opened. Frames are the drive's images; a method has a row
// (pose, error, state …) for each frame that it gave an estimate for.
const data = (() => {
  const raw = JSON.parse(document.getElementById("data").textContent);
  const open = (text, Type) => {
    const binary = atob(text), bytes = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
    return new Type(bytes.buffer);
  };
  const floats = (text) => (text === null ? null : open(text, Float32Array));
  const seconds = floats(raw.frames.seconds);
  const imageFrames = open(raw.frames.imageFrames, Uint32Array);
  const imageOfFrame = new Int32Array(seconds.length).fill(-1);
  for (let frame = 0, image = -1; frame < seconds.length; frame++) {
    if (image + 1 < imageFrames.length && imageFrames[image + 1] <= frame) image++;
    imageOfFrame[frame] = image;
  }
  const methods = raw.methods.map((method, index) => {
    const frames = open(method.frames, Uint32Array);
    const rowOfFrame = new Int32Array(seconds.length).fill(-1);
    frames.forEach((frame, row) => { if (frame < rowOfFrame.length) rowOfFrame[frame] = row; });
    const belief = method.belief && {
      ends: open(method.belief.ends, Uint32Array),
      rows: open(method.belief.rows, Uint32Array),
      values: open(method.belief.values, Int8Array),
    };
    const hypotheses = method.hypotheses && {
      ends: open(method.hypotheses.ends, Uint32Array),
      numbers: open(method.hypotheses.numbers, Uint16Array),
      probabilities: open(method.hypotheses.probabilities, Uint8Array),
      poses: floats(method.hypotheses.poses),
      covariances: floats(method.hypotheses.covariances),
    };
    return {
      index, name: method.name, title: method.title, counts: method.counts, frames, rowOfFrame, belief, hypotheses,
      poses: floats(method.poses), covariances: floats(method.covariances),
      errors: floats(method.errors), sigmas: floats(method.sigmas), inSigmas: floats(method.errorInSigmas),
      states: open(method.states, Uint8Array), evidence: floats(method.evidence),
      milliseconds: floats(method.milliseconds), bestRows: open(method.bestRows, Int32Array),
    };
  });
  return {
    states: raw.states, metrics: raw.metrics, tips: raw.tips, leastEvidence: raw.leastEvidence,
    winning: raw.winning, plan: raw.plan, seconds, truth: floats(raw.frames.truth),
    labels: raw.frames.labels, images: raw.frames.images, imageOfFrame, methods,
    mapPoses: floats(raw.map.poses), mapCount: raw.map.count, thumbnails: raw.map.thumbnails,
    hasTruth: methods.some((method) => floats(raw.methods[method.index].errors).some(Number.isFinite)),
  };
})();

const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [5, 2], [1, 4]];
const seriesColour = (index) => theme.colour(`s${index % 6}`);
// Over the finite values; a long drive has more of them than a function call can take arguments.
const largest = (values, least) => values.reduce((most, value) => (value > most ? value : most), least);
const smallest = (values, most) => values.reduce((least, value) => (value < least ? value : least), most);
const format = (value, digits = 3) => {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (Number.isInteger(value)) return String(value);
  return Math.abs(value) >= 1000 ? value.toFixed(0) : String(Number(value.toPrecision(digits)));
};
const percent = (share) => `${share > 0 && share < 0.095 ? (100 * share).toPrecision(1) : Math.round(100 * share)} %`;
// As a person would say it: 4 mm, 7 cm, 1.25 m.
const metres = (value) => {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size < 0.00995) return `${(1000 * value).toFixed(0)} mm`;
  if (size < 0.995) return `${(100 * value).toFixed(0)} cm`;
  return size < 9.995 ? `${value.toFixed(2)} m` : `${value.toFixed(1)} m`;
};
