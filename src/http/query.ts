// The query of a request target (RFC 3986 §3.4): `&` between parameters, percent-encoding, and `+`
// as itself.
import { HttpError } from './errors.ts';

/**
 * The values of the known parameters; others are ignored.
 * @throws HttpError 400 for a known parameter that comes twice and for malformed percent-encoding
 */
export function parseQuery<Name extends string>(
  query: string,
  known: readonly Name[],
): { readonly [name in Name]?: string } {
  const values: { [name in Name]?: string } = {};
  if (query === '') return values;
  for (const part of query.split('&')) {
    const equals = part.indexOf('=');
    const sent = decode(equals === -1 ? part : part.slice(0, equals));
    const name = known.find((candidate) => candidate === sent);
    if (name === undefined) continue; // 4.2
    if (values[name] !== undefined)
      // 4.2
      throw new HttpError(400, `The query parameter ${name} must appear only once.`);
    values[name] = equals === -1 ? '' : decode(part.slice(equals + 1));
  }
  return values;
}

/** @throws HttpError 400 for malformed percent-encoding, in parameters that nobody reads too */
export function checkQuery(query: string): void {
  // 2.7
  if (query.includes('%')) decode(query);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text); // 2.7
  } catch {
    throw new HttpError(400, 'The query has malformed percent-encoding.');
  }
}
