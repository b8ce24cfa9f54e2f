// Packed arrays opened, colours of series, and numbers written for people.
const byId = (id) => document.getElementById(id);
const unpack = (text, Type) => {
  const binary = atob(text), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return new Type(bytes.buffer);
};
const floats = (text) => (text === null ? null : unpack(text, Float32Array));
// Positions may be UTM's, of which single precision resolves half a metre.
const doubles = (text) => (text === null ? null : unpack(text, Float64Array));

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
const percent = (fraction) => `${fraction > 0 && fraction < 0.095 ? (100 * fraction).toPrecision(1) : Math.round(100 * fraction)} %`;
// As a person would say it: 4 mm, 7 cm, 1.25 m.
const metres = (value) => {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size < 0.00995) return `${(1000 * value).toFixed(0)} mm`;
  if (size < 0.995) return `${(100 * value).toFixed(0)} cm`;
  return size < 9.995 ? `${value.toFixed(2)} m` : `${value.toFixed(1)} m`;
};
