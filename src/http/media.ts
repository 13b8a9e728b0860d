// The media type of a request's body (RFC 9110 §8.3).
import type { IncomingMessage } from 'node:http';
import { HttpError } from './errors.ts';

/** Media types by their short names in the route table. */
export const MEDIA_TYPES = {
  json: 'application/json',
  form: 'application/x-www-form-urlencoded',
  mergePatch: 'application/merge-patch+json',
} as const;

export type MediaType = keyof typeof MEDIA_TYPES;

/** @throws HttpError 415 with the accepted types (2.8, RFC 9110 §15.5.16, §12.5.3) */
export function mediaType(
  req: IncomingMessage,
  accepts: readonly MediaType[],
): MediaType | undefined {
  if (accepts.length === 0) return undefined;
  const coding = req.headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
  if (coding !== 'identity') {
    const fault = 'The body must not have a Content-Encoding other than identity.';
    throw new HttpError(415, fault, ['Accept-Encoding', 'identity']);
  }
  const { type, charsets } = parseContentType(req.headers['content-type'] ?? '');
  const found = accepts.find((name) => MEDIA_TYPES[name] === type);
  if (found !== undefined && charsets.every((charset) => charset === 'utf-8')) return found; // 2.8
  const accepted = accepts.map((name) => MEDIA_TYPES[name]).join(', ');
  const headers = ['Accept', accepted];
  if (req.method === 'PATCH') headers.push('Accept-Patch', accepted);
  const types = accepted.replace(', ', ' or ');
  throw new HttpError(415, `The body must be ${types}, in UTF-8.`, headers);
}

// media-type = type "/" subtype *( OWS ";" OWS [ parameter ] )   (RFC 9110 §8.3.1)
// parameter  = token "=" ( token / quoted-string )
const TYPE = /^[ \t]*([^; \t]*)/;
const PARAMETER =
  /[ \t]*;[ \t]*(?:([\w!#$%&'*+.^`|~-]+)=([\w!#$%&'*+.^`|~-]+|"(?:[^"\\]|\\.)*"))?/y;

function parseContentType(header: string): { type: string; charsets: readonly string[] } {
  const [start, type] = TYPE.exec(header)!;
  const charsets: string[] = [];
  let end = start.length;
  PARAMETER.lastIndex = end;
  for (let match = PARAMETER.exec(header); match !== null; match = PARAMETER.exec(header)) {
    end = PARAMETER.lastIndex;
    const value = match[2]?.replace(/^"(.*)"$/s, '$1').replace(/\\(.)/g, '$1') ?? '';
    if (match[1]?.toLowerCase() === 'charset') charsets.push(value.toLowerCase());
  }
  const isWhole = header.slice(end).trim() === '';
  return { type: isWhole ? type!.toLowerCase() : '', charsets };
}
