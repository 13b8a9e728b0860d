// From a request target to a route. All paths come from one table; order does not matter, as no two
// patterns match the same path.
import { HttpError } from './errors.ts';

/** A path of the table, with all its methods. */
export interface Resource<Route> {
  /** As in the table: `/users/{id}`. */
  readonly pattern: string;
  /** The pattern's parts between slashes. */
  readonly segments: readonly string[];
  /** By method; `HEAD` is wherever `GET` is. */
  readonly routes: ReadonlyMap<string, Route>;
  /** The methods as a list for `Allow`, `OPTIONS` included. */
  readonly allow: string;
}

/** Path parameters by name. */
export type Parameters = Readonly<Record<string, string>>;

const NONE: Parameters = {};

/** What a request target names. */
export interface Match<Route> {
  readonly resource: Resource<Route>;
  /** The values of the pattern's `{name}` segments, percent-decoded. */
  readonly parameters: Parameters;
  /** What follows the first `?`, not decoded. */
  readonly query: string;
}

/** Finds routes; made once from a table whose keys are `METHOD /path`. */
export class Router<Route> {
  readonly #resources: readonly Resource<Route>[];
  // Most requests name a path without parameter as it stands in the table.
  readonly #literal = new Map<string, Match<Route>>();

  constructor(table: Readonly<Record<string, Route>>) {
    const byPattern = new Map<string, Map<string, Route>>();
    for (const [key, route] of Object.entries(table)) {
      const [method = '', pattern = ''] = key.split(' ');
      const routes = byPattern.get(pattern) ?? new Map<string, Route>();
      byPattern.set(pattern, routes.set(method, route));
      if (method === 'GET') routes.set('HEAD', route); // 2.6
    }
    this.#resources = [...byPattern].map(([pattern, routes]) => ({
      pattern,
      segments: pattern.slice(1).split('/'),
      routes,
      allow: [...routes.keys(), 'OPTIONS'].join(', '),
    }));
    for (const resource of this.#resources) {
      if (resource.pattern.includes('{')) continue;
      this.#literal.set(resource.pattern, { resource, parameters: NONE, query: '' });
    }
  }

  /** Every method of the table, as a list for `Allow` (RFC 9110 §9.3.7, `OPTIONS *`). */
  get allow(): string {
    return [...new Set(this.#resources.flatMap(({ allow }) => allow.split(', ')))].join(', ');
  }

  /**
   * @returns undefined for an unknown path
   * @throws HttpError 400 when the path's percent-encoding is malformed
   */
  find(target: string): Match<Route> | undefined {
    return this.#literal.get(target) ?? this.#search(target);
  }

  #search(target: string): Match<Route> | undefined {
    const mark = target.indexOf('?');
    const path = originForm(mark === -1 ? target : target.slice(0, mark)); // 2.7
    const segments = split(path);
    if (segments === undefined) return undefined;
    for (const resource of this.#resources) {
      const parameters = matchSegments(resource.segments, segments);
      if (parameters === undefined) continue;
      return { resource, parameters, query: mark === -1 ? '' : target.slice(mark + 1) };
    }
    return undefined;
  }
}

/** The path of an absolute-form target, which a server must accept (RFC 9112 §3.2.2). */
function originForm(path: string): string {
  // 2.7
  if (path.startsWith('/')) return path;
  const absolute = /^https?:\/\/[^/]*(.*)$/is.exec(path);
  return absolute ? absolute[1] || '/' : path;
}

/**
 * The path's parts, each percent-decoded once, so that `%2F` never separates. Dot segments are
 * ordinary parts and one trailing slash is ignored.
 * @returns undefined when a part is empty
 */
function split(path: string): readonly string[] | undefined {
  // 2.7
  if (!path.startsWith('/')) return undefined;
  const sent = path.slice(1).split('/');
  const parts = path.includes('%') ? sent.map(decodePart) : sent;
  if (parts.length === 1) return parts;
  if (parts.at(-1) === '') parts.pop();
  return parts.includes('') ? undefined : parts;
}

function decodePart(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    throw new HttpError(400, 'The path has malformed percent-encoding.'); // 2.7
  }
}

/** @returns undefined if the segments do not match */
function matchSegments(
  expected: readonly string[],
  given: readonly string[],
): Parameters | undefined {
  if (expected.length !== given.length) return undefined;
  let parameters: Record<string, string> | undefined;
  for (let i = 0; i < expected.length; i++) {
    if (expected[i]!.startsWith('{')) {
      parameters ??= {};
      parameters[expected[i]!.slice(1, -1)] = given[i]!;
    } else if (expected[i] !== given[i]) {
      return undefined;
    }
  }
  return parameters ?? NONE;
}
