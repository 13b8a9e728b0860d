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
// With --disable-proto=delete, node removes "__proto__" from Object.prototype.
const PROTOTYPE_NAMES = new Set(['__proto__', ...Object.getOwnPropertyNames(Object.prototype)]);

type Value = string | Value[] | { [key: string]: Value };

/** What has one name, or one segment of it: `a[b][]=c` is the value `'c'` at `a`, `b` and `''`. */
interface Node {
  readonly values: string[];
  children?: Map<string, Node>;
}

/**
 * Returns nested objects and arrays of strings (3.14, 3.18). Ignores empty names and names that exist
 * on `Object.prototype`.
 * @throws HttpError 413 beyond 200 parameters; 400 for any other fault
 */
export function parseForm(text: string): object {
  // "+" is a space (WHATWG URL, application/x-www-form-urlencoded).
  const plain = text.replaceAll('+', ' ').replace(/%5B/gi, '[').replace(/%5D/gi, ']');
  const parts = plain.split('&', MAX_PARAMETERS + 1);
  if (parts.length > MAX_PARAMETERS) {
    throw new HttpError(413, `The form has more than ${MAX_PARAMETERS} parameters.`); // 3.15
  }
  const root: Node = { values: [] };
  let segmentCount = 0;
  for (const part of parts) {
    // As in qs, a name may contain "=" inside its brackets: "a[b=c]=d" has the name "a[b=c]".
    const equals = part.indexOf('=', part.indexOf(']='));
    const end = equals === -1 ? part.length : equals;
    const path = splitName(part.slice(0, end));
    const value = decode(part.slice(end + 1));
    segmentCount += path.length;
    if (segmentCount > MAX_SEGMENTS) throw malformed(`has more than ${MAX_SEGMENTS} name segments`); // 3.15
    if (path.some((name) => PROTOTYPE_NAMES.has(name))) continue; // 3.17
    let node = root;
    for (const name of path) node = childOf(node, name);
    node.values.push(value);
  }
  return objectOf(root.children ?? []);
}

function childOf(node: Node, name: string): Node {
  node.children ??= new Map();
  const known = node.children.get(name);
  if (known !== undefined) return known;
  const child: Node = { values: [] };
  node.children.set(name, child);
  return child;
}

function build({ values, children }: Node): Value {
  if (children === undefined) return values.length === 1 ? values[0]! : values;
  if (values.length > 0) throw malformed('has a name with both a value and children'); // 3.14
  const [kind, ...otherKinds] = new Set([...children.keys()].map(kindOf));
  if (otherKinds.length > 0) throw malformed('mixes keys, indices and [] under one name'); // 3.14
  if (kind === 'list') {
    const items = build(children.get('')!);
    return Array.isArray(items) ? items : [items];
  }
  if (kind === 'key') return objectOf(children);
  return Array.from({ length: children.size }, (_, index) => {
    const node = children.get(String(index));
    if (node === undefined) throw malformed('has a gap in the indices under one name'); // 3.14
    return build(node);
  });
}

function objectOf(children: Iterable<[string, Node]>): Record<string, Value> {
  return Object.fromEntries(Array.from(children, ([name, node]) => [name, build(node)]));
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

const decode = (text: string) => percentDecode(text, 'form'); // 3.16

const malformed = (fault: string) => new HttpError(400, `The form ${fault}.`);
