// The page's data, its packed arrays opened. Frames are the drive's images; a method has a row
// (pose, error, state …) for each frame that it gave an estimate for.
const data = (() => {
  const raw = JSON.parse(byId("data").textContent);
  const seconds = floats(raw.frames.seconds);
  const imageFrames = unpack(raw.frames.imageFrames, Uint32Array);
  const imageOfFrame = new Int32Array(seconds.length).fill(-1);
  for (let frame = 0, image = -1; frame < seconds.length; frame++) {
    if (image + 1 < imageFrames.length && imageFrames[image + 1] <= frame) image++;
    imageOfFrame[frame] = image;
  }
  const methods = raw.methods.map((method, index) => {
    const frames = unpack(method.frames, Uint32Array);
    const rowOfFrame = new Int32Array(seconds.length).fill(-1);
    frames.forEach((frame, row) => { if (frame < rowOfFrame.length) rowOfFrame[frame] = row; });
    const belief = method.belief && {
      ends: unpack(method.belief.ends, Uint32Array),
      rows: unpack(method.belief.rows, Uint32Array),
      values: unpack(method.belief.values, Int8Array),
    };
    const matches = method.matches && {
      rows: unpack(method.matches.rows, Int32Array),
      counts: unpack(method.matches.counts, Uint32Array),
      ends: unpack(method.matches.ends, Uint32Array),
      camera: unpack(method.matches.camera, Uint8Array),
      mapImage: unpack(method.matches.mapImage, Uint8Array),
      points: floats(method.matches.points),
    };
    const hypotheses = method.hypotheses && {
      ends: unpack(method.hypotheses.ends, Uint32Array),
      numbers: unpack(method.hypotheses.numbers, Uint16Array),
      probabilities: unpack(method.hypotheses.probabilities, Uint8Array),
      poses: doubles(method.hypotheses.poses),
      covariances: floats(method.hypotheses.covariances),
    };
    return {
      index, name: method.name, title: method.title, counts: method.counts, frames, rowOfFrame, belief, hypotheses, matches,
      poses: doubles(method.poses), covariances: floats(method.covariances),
      errors: floats(method.errors), sigmas: floats(method.sigmas), inSigmas: floats(method.mahalanobisErrors),
      states: unpack(method.states, Uint8Array), evidence: floats(method.evidence),
      milliseconds: floats(method.milliseconds), bestRows: unpack(method.bestRows, Int32Array),
    };
  });
  return {
    states: raw.states, events: raw.events, metrics: raw.metrics, tips: raw.tips, leastEvidence: raw.leastEvidence,
    winning: raw.winning, plan: raw.plan, seconds, truth: doubles(raw.frames.truth),
    labels: raw.frames.labels, images: raw.frames.images, imageOfFrame, methods,
    mapPoses: doubles(raw.map.poses), mapCount: raw.map.count, lacking: raw.map.lacking, thumbnails: raw.map.thumbnails,
    hasTruth: methods.some((method) => floats(raw.methods[method.index].errors).some(Number.isFinite)),
  };
})();
