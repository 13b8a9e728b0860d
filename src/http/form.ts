// application/x-www-form-urlencoded with nested values. Read as npm qs 6.17 reads it with
// `depth: 32` (ljharb/qs, BSD-3-Clause), from which the rules of merging are taken. Two things
// differ on purpose: beyond a limit and for a malformed escape qs drops or reshapes, we refuse.
//
//   user[name]=x            { user: { name: 'x' } }
//   a[]=1&a[]=2   a=1&a=2   { a: ['1', '2'] }
//   a[1]=x&a[0]=y           { a: ['y', 'x'] }
//   a=1&a[b]=2              { a: ['1', { b: '2' }] }
import { HttpError } from './errors.ts';

const MAX_PARAMETERS = 1_000;
const MAX_DEPTH = 32;
const MAX_INDEX = 999;

/** Arrays hold at most this many elements and indices; what grows beyond is an object (qs). */
const ARRAY_LIMIT = 20;

/** JavaScript lists the keys of an object up to this integer first (ECMA-262, array index). */
const MAX_INTEGER_KEY = 2 ** 32 - 2;

type Value = string | Value[] | { [key: string]: Value };
type Container = Exclude<Value, string>;

/**
 * The form's values: strings, arrays and objects of them. Names of `Object.prototype` are ignored.
 * @throws HttpError 413 beyond 1,000 parameters; 400 beyond depth 32 or array index 999, and for
 * percent-encoding that is malformed or not UTF-8
 */
export function parseForm(text: string): object {
  // 3.18
  return new FormReader().read(text);
}

class FormReader {
  // 3.14
  // Objects that were arrays before they outgrew ARRAY_LIMIT, with their highest index.
  readonly #outgrown = new Map<object, number>();
  // Arrays and objects made because one name has a string and an object, with their highest index.
  readonly #mixed = new Map<object, number>();

  read(text: string): object {
    let form: Value = {};
    for (const [name, value] of this.#parameters(text)) {
      const path = splitName(name);
      if (path !== undefined) form = this.#merge(form, this.#nest(path, value));
    }
    return compact(form) as object;
  }

  /** The parameters by decoded name, those of the same name combined. */
  #parameters(text: string): Map<string, Value> {
    const parameters = new Map<string, Value>();
    if (text === '') return parameters;
    const parts = text.replace(/%5B/gi, '[').replace(/%5D/gi, ']').split('&');
    if (parts.length > MAX_PARAMETERS) {
      // 3.15
      throw new HttpError(413, `The form has more than ${MAX_PARAMETERS} parameters.`);
    }
    for (const part of parts) {
      // A name may hold "=" inside its brackets: "a[b=c]=d" has the name "a[b=c]".
      const bracket = part.indexOf(']=');
      const equals = bracket === -1 ? part.indexOf('=') : bracket + 1;
      const name = decode(equals === -1 ? part : part.slice(0, equals));
      const value = equals === -1 ? '' : decode(part.slice(equals + 1));
      const before = parameters.get(name);
      parameters.set(name, before === undefined ? value : this.#concat(before, value));
    }
    // Objects list integer keys first, in ascending order, and in that order qs merges.
    const integers = [...parameters.keys()]
      .filter((key) => isIndex(key) && Number(key) <= MAX_INTEGER_KEY)
      .sort((a, b) => Number(a) - Number(b));
    if (integers.length === 0) return parameters;
    return new Map([...integers.map((key) => [key, parameters.get(key)!] as const), ...parameters]);
  }

  /** The value under its path: ['a', '[b]', '[]'] and "x" give { a: { b: ['x'] } }. */
  #nest(path: readonly string[], value: Value): Value {
    return path.reduceRight((leaf: Value, segment) => {
      if (segment === '[]')
        return this.#outgrown.has(leaf as object) ? leaf : this.#concat([], leaf);
      const key = unwrap(segment);
      const index = segment !== key && isIndex(key) ? Number(key) : undefined;
      if (index === undefined) return { [key]: leaf };
      if (index > MAX_INDEX) {
        // 3.15
        throw new HttpError(400, `The form has an array index above ${MAX_INDEX}.`);
      }
      const container: Container = index < ARRAY_LIMIT ? [] : {};
      (container as Record<number, Value>)[index] = leaf;
      if (index >= ARRAY_LIMIT) this.#outgrown.set(container, index);
      return container;
    }, value);
  }

  /** Both as one list. */
  #concat(a: Value, b: Value): Value {
    if (this.#outgrown.has(a as object)) {
      for (const value of Array.isArray(b) ? b : [b])
        this.#append(a as Container, value, this.#outgrown);
      return a;
    }
    return this.#limited(([] as Value[]).concat(a, b));
  }

  /** The array, or the object that it becomes when it holds more than ARRAY_LIMIT elements. */
  #limited(array: Value[], count = array.length): Value {
    if (count <= ARRAY_LIMIT) return array;
    const object = { ...array } as unknown as Container;
    this.#outgrown.set(object, array.length - 1);
    return object;
  }

  #append(target: Container, value: Value, highest: Map<object, number>): void {
    const index = highest.get(target)! + 1;
    (target as Record<number, Value>)[index] = value;
    highest.set(target, index);
  }

  /** What two parameters give whose paths begin alike. An empty string adds nothing. */
  #merge(target: Value, source: Value): Value {
    if (source === '') return target;
    if (typeof source === 'string') return this.#mergeString(target, source);
    if (typeof target === 'string') return this.#prepend(target, source);
    if (Array.isArray(target) && Array.isArray(source)) return this.#mergeArrays(target, source);
    const object = this.#asObject(target);
    for (const [key, value] of Object.entries(source)) {
      object[key] = Object.hasOwn(object, key) ? this.#merge(object[key]!, value) : value;
      this.#raise(object, source, key);
    }
    return object;
  }

  #mergeString(target: Value, source: string): Value {
    if (typeof target === 'string') return [target, source];
    if (Array.isArray(target)) {
      if (Object.keys(target).length >= ARRAY_LIMIT)
        return this.#limited(target.concat(source), Infinity);
      target.push(source);
    } else if (this.#outgrown.has(target)) {
      this.#append(target, source, this.#outgrown);
    } else if (this.#mixed.has(target)) {
      this.#append(target, source, this.#mixed);
    } else {
      const pair = [target, source];
      this.#mixed.set(pair, 1);
      return pair;
    }
    return target;
  }

  /** The string before the elements of the source. */
  #prepend(target: string, source: Container): Value {
    const highest = this.#outgrown.get(source);
    if (highest === undefined) return this.#limited([target as Value].concat(source));
    const shifted: Record<number, Value> = { 0: target };
    for (const [key, value] of Object.entries(source))
      shifted[Number.parseInt(key, 10) + 1] = value;
    this.#outgrown.set(shifted, highest + 1);
    return shifted;
  }

  #mergeArrays(target: Value[], source: Value[]): Value {
    source.forEach((item, i) => {
      const present = Object.hasOwn(target, i) ? target[i]! : undefined;
      if (present === undefined) target[i] = item;
      else if (typeof present === 'object' && typeof item === 'object') {
        target[i] = this.#merge(present, item);
      } else target.push(item);
    });
    return this.#limited(target, Object.keys(target).length);
  }

  #asObject(target: Container): { [key: string]: Value } {
    if (!Array.isArray(target)) return target;
    const object = { ...target } as unknown as { [key: string]: Value };
    if (this.#mixed.has(target)) this.#mixed.set(object, target.length - 1);
    return object;
  }

  /** Keeps the highest index of `object` true after `key` of `source` came in. */
  #raise(object: Container, source: Container, key: string): void {
    if (this.#outgrown.has(source) && !this.#outgrown.has(object)) {
      const indices = Object.keys(object).filter(isIndex);
      this.#outgrown.set(object, Math.max(this.#outgrown.get(source)!, ...indices.map(Number)));
    }
    if (!isIndex(key)) return;
    for (const highest of [this.#outgrown, this.#mixed]) {
      const before = highest.get(object);
      if (before !== undefined && Number(key) > before) highest.set(object, Number(key));
    }
  }
}

/**
 * The path of a name: "a[b][c]" gives ['a', '[b]', '[c]']. Text between or after the brackets is
 * ignored, an open bracket that is never closed is literal.
 * @returns undefined when the name is empty or holds a name of `Object.prototype`
 */
function splitName(name: string): readonly string[] | undefined {
  const path: string[] = [];
  let open = name.indexOf('[');
  const parent = open === -1 ? name : name.slice(0, open);
  if (isPrototypeName(parent) || name === '') return undefined;
  if (parent !== '') path.push(parent);
  while (open !== -1) {
    if (path.length - (parent === '' ? 0 : 1) === MAX_DEPTH) {
      // 3.15
      throw new HttpError(400, `The form is nested deeper than ${MAX_DEPTH} levels.`);
    }
    const close = closingBracket(name, open);
    if (close === -1) return [...path, `[${name.slice(open)}]`];
    if (isPrototypeName(name.slice(open + 1, close))) return undefined;
    path.push(name.slice(open, close + 1));
    open = name.indexOf('[', close + 1);
  }
  return path;
}

function closingBracket(name: string, open: number): number {
  let level = 0;
  for (let i = open; i < name.length; i++) {
    if (name[i] === '[') level++;
    else if (name[i] === ']' && --level === 0) return i;
  }
  return -1;
}

// With node's --disable-proto=delete "__proto__" is no longer found on Object.prototype.
function isPrototypeName(name: string): boolean {
  // 3.17
  return name === '__proto__' || Object.hasOwn(Object.prototype, name);
}

function unwrap(segment: string): string {
  return segment.startsWith('[') && segment.endsWith(']') ? segment.slice(1, -1) : segment;
}

/** A canonical integer from 0: "0", "17", not "01" or "-1". */
function isIndex(key: string): boolean {
  return /^(?:0|[1-9][0-9]*)$/.test(key);
}

/** Percent-decoding of UTF-8, "+" for a space (WHATWG URL, application/x-www-form-urlencoded). */
function decode(text: string): string {
  try {
    return decodeURIComponent(text.replaceAll('+', ' '));
  } catch {
    throw new HttpError(400, 'The form has malformed percent-encoding.'); // 3.16
  }
}

/** Closes the holes that indices left in arrays. */
function compact(value: Value): Value {
  if (typeof value === 'string') return value;
  for (const [key, inner] of Object.entries(value)) {
    (value as Record<string, Value>)[key] = compact(inner);
  }
  return Array.isArray(value) ? value.filter(() => true) : value;
}
