/** Files of points: CSV and the like, JSON, NumPy's format, Parquet. Read in the browser; nothing is sent to read them. */

import { fromColumns } from "./tables.js";

const TYPES = /** @type {Record<string, [number, (view: DataView, at: number, little: boolean) => number]>} */ ({
  f8: [8, (view, at, little) => view.getFloat64(at, little)],
  f4: [4, (view, at, little) => view.getFloat32(at, little)],
  i8: [8, (view, at, little) => Number(view.getBigInt64(at, little))],
  i4: [4, (view, at, little) => view.getInt32(at, little)],
  i2: [2, (view, at, little) => view.getInt16(at, little)],
  i1: [1, (view, at) => view.getInt8(at)],
  u8: [8, (view, at, little) => Number(view.getBigUint64(at, little))],
  u4: [4, (view, at, little) => view.getUint32(at, little)],
  u2: [2, (view, at, little) => view.getUint16(at, little)],
  u1: [1, (view, at) => view.getUint8(at)],
  b1: [1, (view, at) => view.getUint8(at)],
});

/**
 * Read a file by its name and its first bytes. Raises Error with what is wrong.
 * @param {File} file
 * @returns {Promise<import("./tables.js").Table>}
 */
export async function readFile(file) {
  const first = new Uint8Array(await file.slice(0, 6).arrayBuffer());
  const starts = (/** @type {string} */ text) => [...text].every((letter, i) => first[i] === letter.charCodeAt(0));
  if (starts("\x93NUMPY")) return readNpy(await file.arrayBuffer());
  if (starts("PAR1")) return readParquet(file);
  return readText(await file.text());
}

/**
 * Read pasted text: one point a line, its numbers separated by commas, semicolons, tabs or blanks; or JSON.
 * @param {string} text
 * @returns {import("./tables.js").Table}
 */
export function readText(text) {
  const trimmed = text.trim();
  if (trimmed === "") throw new Error("There is nothing to read. Paste one point a line.");
  if (trimmed.startsWith("{") || trimmed.startsWith("[")) return readJson(trimmed);
  const lines = trimmed.split(/\r?\n/).filter((line) => line.trim() !== "");
  const mark = [",", ";", "\t"].find((one) => lines[0].includes(one)) ?? null;
  const rows = lines.map((line) => cells(line, mark));
  const headed = rows[0].some((cell) => cell.trim() === "" || !Number.isFinite(Number(cell)));
  if (headed && rows.length === 1) throw new Error(`“${rows[0][0].slice(0, 40)}” is not a number. Paste one point a line.`);
  const width = rows[0].length;
  const bad = rows.findIndex((row) => row.length !== width);
  if (bad >= 0) throw new Error(`Line ${bad + 1} has ${rows[bad].length} values, the first line has ${width}.`);
  const names = headed ? rows[0].map((cell) => cell.trim()) : rows[0].map((_, j) => `column ${j + 1}`);
  const body = headed ? rows.slice(1) : rows;
  const table = fromColumns(names, names.map((_, j) => body.map((row) => row[j])));
  if (table.d === 0) throw new Error("No column holds numbers alone.");
  return headed ? table : { ...table, names: null };
}

/**
 * The cells of a line; quotes protect the mark between cells.
 * @param {string} line
 * @param {string|null} mark null: blanks
 */
function cells(line, mark) {
  if (mark === null) return line.trim().split(/\s+/);
  if (!line.includes('"')) return line.split(mark);
  const found = [];
  let cell = "";
  let quoted = false;
  for (let i = 0; i < line.length; i++) {
    const letter = line[i];
    if (letter === '"' && quoted && line[i + 1] === '"') cell += line[++i];
    else if (letter === '"') quoted = !quoted;
    else if (letter === mark && !quoted) {
      found.push(cell);
      cell = "";
    }
    else cell += letter;
  }
  return [...found, cell];
}

/**
 * @param {string} text
 */
function readJson(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    value = text.split(/\r?\n/).filter((line) => line.trim()).map((line, i) => {
      try {
        return JSON.parse(line);
      } catch {
        throw new Error(`Line ${i + 1} is not JSON.`);
      }
    });
  }
  const points = Array.isArray(value) ? (typeof value[0] === "number" ? [value] : value) : value.points;
  if (!Array.isArray(points) || points.length === 0) throw new Error('The JSON holds no points; use [[1.2, 3.4], ...] or {"points": [...]}.');
  if (!Array.isArray(points[0])) return fromObjects(points.map((/** @type {any} */ one) => one.point ?? one));
  const d = points[0].length;
  const bad = points.findIndex((/** @type {any} */ row) => !Array.isArray(row) || row.length !== d);
  if (bad >= 0) throw new Error(`Point ${bad + 1} has not ${d} numbers as the first one.`);
  return { n: points.length, d, data: Float64Array.from(points.flat(), Number), names: null, keys: value.keys ?? null, skipped: [] };
}

/** @param {any[]} objects */
function fromObjects(objects) {
  const names = Object.keys(objects[0]);
  return fromColumns(names, names.map((name) => objects.map((one) => one[name] ?? null)));
}

/**
 * Read an array in NumPy's format, of one or two dimensions.
 * @param {ArrayBuffer} buffer
 * @returns {import("./tables.js").Table}
 */
export function readNpy(buffer) {
  const view = new DataView(buffer);
  const long = view.getUint8(6) >= 2;
  const start = (long ? 12 : 10) + (long ? view.getUint32(8, true) : view.getUint16(8, true));
  const header = new TextDecoder("latin1").decode(new Uint8Array(buffer, long ? 12 : 10, start - (long ? 12 : 10)));
  const [, order, name] = header.match(/'descr': '([<>|=])([a-z]\d+)'/) ?? [];
  const shape = (header.match(/'shape': \(([^)]*)\)/)?.[1] ?? "").split(",").filter((one) => one.trim()).map(Number);
  const type = TYPES[name];
  if (!type || shape.length < 1 || shape.length > 2) throw new Error("The array is not a table of numbers; save one with two dimensions.");
  const [n, d] = shape.length === 2 ? shape : [1, shape[0]];
  const [size, read] = type;
  if (buffer.byteLength < start + n * d * size) throw new Error("The file ends before the array does.");
  const fortran = header.includes("'fortran_order': True");
  const data = new Float64Array(n * d);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < d; j++) data[i * d + j] = read(view, start + size * (fortran ? j * n + i : i * d + j), order !== ">");
  }
  return { n, d, data, names: null, keys: null, skipped: [] };
}

/**
 * Read a Parquet file, uncompressed or with Snappy, which is what most programs write.
 * @param {File} file
 */
async function readParquet(file) {
  const { parquetReadObjects } = /** @type {any} */ (await import("../vendor/hyparquet/index.js"));
  const source = {
    byteLength: file.size,
    slice: (/** @type {number} */ from, /** @type {number} */ to) => file.slice(from, to).arrayBuffer(),
  };
  const rows = await parquetReadObjects({ file: source });
  if (rows.length === 0) throw new Error("The file holds no rows.");
  const table = fromObjects(rows);
  if (table.d === 0) throw new Error("No column holds numbers alone.");
  return table;
}
