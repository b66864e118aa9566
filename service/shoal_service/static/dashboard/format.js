/** Numbers, times and words as people read them. */

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** @param {number|null|undefined} value */
export function whole(value) {
  return value === null || value === undefined || !Number.isFinite(value) ? "–" : WHOLE.format(value);
}

/**
 * A number in about `digits` significant digits.
 * @param {number|null|undefined} value
 * @param {number} [digits]
 */
export function short(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(digits - 1);
  if (size >= 1000) return WHOLE.format(value);
  return String(Number(value.toPrecision(digits)));
}

/**
 * Numbers of one column, with as many decimals as the largest needs for about `digits` significant digits.
 * @param {(number|null|undefined)[]} values
 * @param {number} [digits]
 * @returns {string[]}
 */
export function column(values, digits = 3) {
  const known = values.filter((one) => typeof one === "number" && Number.isFinite(one)).map((one) => Math.abs(/** @type {number} */ (one)));
  const most = Math.max(...known, 0);
  if (most >= 1e7 || (most !== 0 && most < 1e-4)) return values.map((one) => short(one, digits));
  const decimals = most === 0 || known.every(Number.isInteger) ? 0 : Math.max(digits - 1 - Math.floor(Math.log10(most)), 0);
  const words = new Intl.NumberFormat("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  return values.map((one) => (one === null || one === undefined || !Number.isFinite(one) ? "–" : words.format(one).replace(/^-(0(\.0*)?)$/, "$1")));
}

/** @param {number|null|undefined} share */
export function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  const value = 100 * share;
  if (value !== 0 && value < 0.1) return "< 0.1 %";
  return `${value === 0 || value >= 10 ? Math.round(value) : value.toFixed(1)} %`;
}

/** @param {number|null} seconds */
export function duration(seconds) {
  if (seconds === null || !Number.isFinite(seconds)) return "–";
  if (seconds < 1) return "< 1 s";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/** @param {number|null} perSecond */
export function rate(perSecond) {
  return perSecond === null ? "–" : `${short(perSecond)}/s`;
}

/**
 * @param {number} n
 * @param {string} one
 * @param {string} [many]
 */
export function counted(n, one, many = `${one}s`) {
  return `${whole(n)} ${n === 1 ? one : many}`;
}

/**
 * A name that people gave, as one part of a sentence: its direction of writing changes nothing around it. Plain ASCII
 * stays as it is, to be found and copied.
 * @param {string} name
 */
export function isolated(name) {
  return /^[ -~]*$/.test(name) ? name : `\u2068${name}\u2069`;
}

/**
 * The family of a stream. Columns of several kinds have several: each is named once.
 * @param {string|Record<string, string>} family
 */
export function familyWords(family) {
  return typeof family === "string" ? family : [...new Set(Object.values(family))].join(" + ");
}

/**
 * The name of a feature: that of the settings, or its number.
 * @param {any} settings
 * @param {number} feature
 */
export function featureName(settings, feature) {
  return settings?.feature_names?.[feature] ?? `feature ${feature}`;
}
