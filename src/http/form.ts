// Parses application/x-www-form-urlencoded with nested values. Each accepted form gives the result
// of npm qs with `{ depth: 32, arrayLimit: 1000 }`. Rejects forms that qs would reshape.
//
//   a=1                  { a: '1' }           a=1&a=2              { a: ['1', '2'] }
//   a[b]=1&a[c][d]=2     { a: { b: '1', c: { d: '2' } } }
//   a[]=1&a[]=2          { a: ['1', '2'] }    a[1]=y&a[0]=x        { a: ['x', 'y'] }
import { HttpError } from './errors.ts';
import { percentDecode } from './query.ts';

const MAX_PARAMETERS = 200;
const MAX_LEVELS = 32;
const MAX_SEGMENTS = 500;

type Value = string | Value[] | { [key: string]: Value };

/** `a[b][]=c` has the path `['a', 'b', '']` and the value `'c'`. */
type Parameter = { readonly path: readonly string[]; readonly value: string };

/**
 * Returns nested objects and arrays of strings (3.14, 3.18). Ignores empty names and names that exist
 * on `Object.prototype`.
 * @throws HttpError 413 beyond 200 parameters; 400 for any other fault
 */
export function parseForm(text: string): object {
  const bracketed = text.replace(/%5B/gi, '[').replace(/%5D/gi, ']');
  const parts = bracketed.split('&', MAX_PARAMETERS + 1);
  if (parts.length > MAX_PARAMETERS) {
    throw new HttpError(413, `The form has more than ${MAX_PARAMETERS} parameters.`); // 3.15
  }
  const parameters: Parameter[] = [];
  let segmentCount = 0;
  for (const part of parts) {
    // As in qs, a name may contain "=" inside its brackets: "a[b=c]=d" has the name "a[b=c]".
    const equals = part.indexOf('=', part.indexOf(']='));
    const end = equals === -1 ? part.length : equals;
    const path = splitName(part.slice(0, end));
    const value = decode(part.slice(end + 1));
    segmentCount += path.length;
    if (segmentCount > MAX_SEGMENTS) throw malformed(`has more than ${MAX_SEGMENTS} name segments`); // 3.15
    if (path.length > 0 && !path.some(isPrototypeName)) parameters.push({ path, value }); // 3.17
  }
  // V8 stores {}[999] in an array of 12 kB. A deleted large index makes it use a hash table.
  const form: Record<string, Value> = { 4294967294: '' };
  delete form[4294967294];
  const groups = Map.groupBy(parameters, ({ path }) => path[0]!);
  for (const [name, group] of groups) form[name] = build(group, 1);
  return form;
}

/** Returns the value of parameters whose paths share the first `level` segments. */
function build(parameters: readonly Parameter[], level: number): Value {
  const values = parameters.filter(({ path }) => path.length === level).map(({ value }) => value);
  if (values.length === parameters.length) return values.length === 1 ? values[0]! : values;
  if (values.length > 0) throw malformed('has a name with both a value and children'); // 3.14

  const groups = Map.groupBy(parameters, ({ path }) => path[level]!);
  const [kind, ...otherKinds] = new Set([...groups.keys()].map(kindOf));
  if (otherKinds.length > 0) throw malformed('mixes keys, indices and [] under one name'); // 3.14
  if (kind === 'list') {
    const items = build(parameters, level + 1);
    return Array.isArray(items) ? items : [items];
  }
  if (kind === 'key') {
    return Object.fromEntries(Array.from(groups, ([key, group]) => [key, build(group, level + 1)]));
  }
  return Array.from({ length: groups.size }, (_, index) => {
    const group = groups.get(String(index));
    if (group === undefined) throw malformed('has a gap in the indices under one name'); // 3.14
    return build(group, level + 1);
  });
}

function kindOf(segment: string): 'key' | 'index' | 'list' {
  if (segment === '') return 'list';
  return /^(?:0|[1-9][0-9]*)$/.test(segment) ? 'index' : 'key';
}

function splitName(name: string): readonly string[] {
  if (name === '') return [];
  const [first = '', ...rest] = name.split('[', MAX_LEVELS + 2);
  if (rest.length > MAX_LEVELS) throw malformed(`has more than ${MAX_LEVELS} levels`); // 3.15
  // With "=" in the first segment, as in "a=[b]=c", qs and URLSearchParams read different names.
  if (!/^[^\]=]+$/.test(first) || !rest.every((end) => /^[^\]]*\]$/.test(end))) {
    throw malformed('has a misplaced or unclosed bracket in a name'); // 3.14
  }
  return [decode(first), ...rest.map((end) => decode(end.slice(0, -1)))];
}

function isPrototypeName(name: string): boolean {
  // With --disable-proto=delete, node removes "__proto__" from Object.prototype.
  return name === '__proto__' || Object.hasOwn(Object.prototype, name);
}

/** Here "+" is a space (WHATWG URL, application/x-www-form-urlencoded). */
const decode = (text: string) => percentDecode(text.replaceAll('+', ' '), 'form'); // 3.16

const malformed = (fault: string) => new HttpError(400, `The form ${fault}.`);
