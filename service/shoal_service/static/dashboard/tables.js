/** Points as a table, and the body in which they are sent. */

/**
 * @typedef {object} Table
 * @property {number} n rows
 * @property {number} d features
 * @property {Float64Array} data row after row
 * @property {string[]|null} names of the features
 * @property {(string|null)[]|null} keys
 * @property {string[]} skipped names of the columns that are no numbers
 */

/**
 * A table from named columns. A column `key` holds keys; others that are no numbers are skipped.
 * @param {string[]} names
 * @param {any[][]} columns
 * @returns {Table}
 */
export function fromColumns(names, columns) {
  const n = columns[0]?.length ?? 0;
  const at = names.findIndex((name) => name.toLowerCase() === "key");
  const numeric = columns.map((column, j) => j !== at && column.every((value) => isNumber(value)));
  const kept = names.map((_, j) => j).filter((j) => numeric[j]);
  const data = new Float64Array(n * kept.length);
  kept.forEach((j, k) => {
    for (let i = 0; i < n; i++) data[i * kept.length + k] = columns[j][i] === "" || columns[j][i] === null ? NaN : Number(columns[j][i]);
  });
  const keys = at < 0 ? null : columns[at].map((value) => (value === null || value === "" ? null : String(value)));
  const skipped = names.filter((_, j) => !numeric[j] && j !== at);
  return { n, d: kept.length, data, names: kept.map((j) => names[j]), keys, skipped };
}

/** @param {any} value */
function isNumber(value) {
  if (typeof value === "string") return value.trim() === "" || Number.isFinite(Number(value));
  return value === null || ["number", "bigint", "boolean"].includes(typeof value);
}

/**
 * The columns in the order that a stream expects, where it has names and the table has all of them.
 * @param {Table} table
 * @param {string[]|null|undefined} wanted
 * @returns {Table}
 */
export function inOrder(table, wanted) {
  const names = table.names;
  if (!wanted?.length || !names || !wanted.every((name) => names.includes(name))) return table;
  const from = wanted.map((name) => names.indexOf(name));
  const data = new Float64Array(table.n * wanted.length);
  for (let i = 0; i < table.n; i++) from.forEach((j, k) => (data[i * wanted.length + k] = table.data[i * table.d + j]));
  return { ...table, d: wanted.length, data, names: wanted };
}

/**
 * Rows as the body of a request: NumPy's format, or JSON where they have keys.
 * @param {Table} table
 * @param {number} from
 * @param {number} to
 * @returns {{body: BodyInit, kind: string}}
 */
export function bodyOf(table, from, to) {
  const rows = table.data.subarray(from * table.d, to * table.d);
  if (table.keys === null) return { body: npy(rows, to - from, table.d), kind: "application/x-npy" };
  const points = [...Array(to - from).keys()].map((i) => [...rows.subarray(i * table.d, (i + 1) * table.d)]);
  return { body: JSON.stringify({ points, keys: table.keys.slice(from, to) }), kind: "application/json" };
}

/**
 * An array in NumPy's format 1.0.
 * @param {Float64Array} rows
 * @param {number} n
 * @param {number} d
 */
function npy(rows, n, d) {
  const text = `{'descr': '<f8', 'fortran_order': False, 'shape': (${n}, ${d}), }`;
  const size = Math.ceil((10 + text.length + 1) / 64) * 64;
  const bytes = new Uint8Array(size + 8 * rows.length);
  bytes.set([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, (size - 10) & 255, (size - 10) >> 8]);
  bytes.set(new TextEncoder().encode(text.padEnd(size - 11) + "\n"), 10);
  const view = new DataView(bytes.buffer, size);
  rows.forEach((value, i) => view.setFloat64(8 * i, value, true));
  return bytes;
}
