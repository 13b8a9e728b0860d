// Finds the route of a request target. The order of the table does not matter, because a path matches
// at most one pattern.
import { percentDecode } from './query.ts';

/** A path of the table with all its methods. */
export interface Resource<Route> {
  /** As in the table: `/users/{id}`. */
  readonly pattern: string;
  readonly segments: readonly string[];
  /** By method. `HEAD` has the route of `GET`. */
  readonly routes: ReadonlyMap<string, Route>;
  /** Value of `Allow`. */
  readonly allow: string;
}

interface Match<Route> {
  readonly resource: Resource<Route>;
  /** Values of the pattern's `{name}` segments, percent-decoded. */
  readonly parameters: Readonly<Record<string, string>>;
  /** The query without its `?`, not decoded. */
  readonly query: string;
}

export class Router<Route> {
  readonly #resources: Resource<Route>[] = [];
  /** Matches of the paths without parameters, for a lookup that parses nothing. */
  readonly #literal = new Map<string, Match<Route>>();

  /** The keys of the table are `METHOD /path`. @throws an Error if a path can match two patterns */
  constructor(table: Readonly<Record<string, Route>>) {
    const byPattern = new Map<string, Map<string, Route>>();
    for (const [key, route] of Object.entries(table)) {
      const [method = '', pattern = ''] = key.split(' ');
      const routes = byPattern.get(pattern) ?? new Map<string, Route>();
      byPattern.set(pattern, routes.set(method, route));
      if (method === 'GET') routes.set('HEAD', route); // 2.6
    }
    for (const [pattern, routes] of byPattern) {
      const segments = pattern.slice(1).split('/');
      const twin = this.#resources.find((one) => overlap(one.segments, segments));
      if (twin) throw new Error(`a path can match both ${twin.pattern} and ${pattern}`);
      const allow = [...routes.keys(), 'OPTIONS'].join(', ');
      const resource = { pattern, segments, routes, allow };
      this.#resources.push(resource);
      if (segments.some(isParameter)) continue;
      this.#literal.set(pattern, { resource, parameters: {}, query: '' });
    }
  }

  /** Value of `Allow` for `OPTIONS *`: every method of the table (RFC 9110 §9.3.7). */
  get allow(): string {
    return [...new Set(this.#resources.flatMap(({ allow }) => allow.split(', ')))].join(', ');
  }

  /** @throws HttpError 400 if the path has malformed percent-encoding */
  find(target: string): Match<Route> | undefined {
    const literal = this.#literal.get(target);
    if (literal !== undefined) return literal;
    const mark = target.indexOf('?');
    const end = mark === -1 ? target.length : mark;
    const segments = splitPath(withoutOrigin(target.slice(0, end)));
    for (const resource of this.#resources) {
      const parameters = matchPath(resource.segments, segments);
      if (parameters === undefined) continue;
      return { resource, parameters, query: target.slice(end + 1) };
    }
    return undefined;
  }
}

/** Returns the path of a target, also of one in absolute form (2.7, RFC 9112 §3.2.2). */
function withoutOrigin(path: string): string {
  if (path.startsWith('/')) return path;
  const absolute = /^https?:\/\/[^/]*(.*)$/is.exec(path);
  return absolute ? absolute[1] || '/' : path;
}

/**
 * Splits a path, then decodes each segment once, so `%2F` never separates (2.7). Ignores one trailing
 * slash. A path with an empty segment, or without a slash in front, has no segments.
 */
function splitPath(path: string): readonly string[] {
  if (!path.startsWith('/')) return [];
  const sent = path.slice(1).split('/');
  const segments = path.includes('%') ? sent.map((one) => percentDecode(one, 'path')) : sent;
  if (segments.length === 1) return segments;
  if (segments.at(-1) === '') segments.pop();
  return segments.includes('') ? [] : segments;
}

function matchPath(pattern: readonly string[], path: readonly string[]) {
  if (pattern.length !== path.length) return undefined;
  const parameters: Record<string, string> = {};
  for (let i = 0; i < pattern.length; i++) {
    const segment = pattern[i]!;
    if (isParameter(segment)) parameters[segment.slice(1, -1)] = path[i]!;
    else if (segment !== path[i]) return undefined;
  }
  return parameters;
}

function overlap(a: readonly string[], b: readonly string[]): boolean {
  const fits = (segment: string, i: number) =>
    segment === b[i] || isParameter(segment) || isParameter(b[i]!);
  return a.length === b.length && a.every(fits);
}

function isParameter(segment: string): boolean {
  return segment.startsWith('{');
}
