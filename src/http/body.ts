// Reads a request's body: its size, its media type, its syntax. What the values mean is the
// handler's business.
import { isUtf8 } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import { HttpError } from './errors.ts';
import { parseForm } from './form.ts';
import { expectsContinue } from './reply.ts';

/** The media types that routes take, by the short names of the route table. */
export const MEDIA_TYPES = {
  json: 'application/json',
  form: 'application/x-www-form-urlencoded',
  mergePatch: 'application/merge-patch+json',
} as const;

/** A media type that some route takes. */
export type MediaType = keyof typeof MEDIA_TYPES;

/** Whether a request announces a body (RFC 9112 §6.3). */
export function hasBody(req: IncomingMessage): boolean {
  // 2.8
  const { 'content-length': length, 'transfer-encoding': coding } = req.headers;
  return coding !== undefined || (length !== undefined && Number(length) !== 0);
}

/**
 * The parsed body: undefined for an empty one. A route that takes no body gets undefined too: what
 * the client sent has no meaning there (RFC 9110 §9.3.1), but its size is limited all the same.
 * The checks are in the contract's order, and `proceed` is called once the body is wanted from a
 * client that waits for 100.
 * @throws HttpError 413, 415 or 400
 */
export async function readBody(
  // 2.5
  req: IncomingMessage,
  accepts: readonly MediaType[],
  limitBytes: number,
  proceed: () => void,
): Promise<unknown> {
  const declared = req.headers['content-length'];
  if (Number(declared ?? 0) > limitBytes) throw tooLarge(limitBytes); // 2.8
  const isAwaited = expectsContinue(req);
  // A body of unknown length can still turn out too large, which is the check before this one; but
  // a client that waits is not told to send what is refused (2.14).
  let type = declared === undefined && !isAwaited ? undefined : mediaType(req, accepts);
  if (isAwaited) proceed(); // 2.14
  const bytes = await read(req, limitBytes);
  if (bytes.length === 0 || accepts.length === 0) return undefined; // 2.15
  type ??= mediaType(req, accepts);
  if (!isUtf8(bytes)) throw new HttpError(400, 'The body is not valid UTF-8.'); // 2.8
  const text = bytes.toString();
  return type === 'form' ? parseForm(text) : parseJson(text);
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new HttpError(400, 'The body is not valid JSON.'); // 2.8
  }
}

const EMPTY = Buffer.alloc(0);

/** Of a buffer for a body in pieces. */
const MIN_BUFFER_BYTES = 4096;

function read(req: IncomingMessage, limitBytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    // One buffer: the objects of chunks of a byte each would be hundreds of times as large.
    let buffer: Buffer = EMPTY;
    let length = 0;
    req.on('data', (chunk: Buffer) => {
      const end = length + chunk.length;
      if (end > limitBytes) return reject(tooLarge(limitBytes)); // 2.8
      if (end > buffer.length) {
        if (length === 0) buffer = chunk;
        else
          buffer = Buffer.concat(
            [buffer.subarray(0, length)],
            Math.min(Math.max(2 * end, MIN_BUFFER_BYTES), limitBytes),
          );
      }
      if (buffer !== chunk) chunk.copy(buffer, length);
      length = end;
    });
    req.on('end', () => {
      resolve(buffer.subarray(0, length));
      // The request is kept until the next one of its connection, and this function with it.
      buffer = EMPTY;
    });
    // Emitted when the client has gone, or when node's parser has refused the rest of the body.
    req.on('error', (err) => reject(err instanceof HttpError ? err : new HttpError(400)));
  });
}

function tooLarge(limitBytes: number): HttpError {
  return new HttpError(413, `The body is larger than ${limitBytes} bytes.`);
}

/**
 * Which of the accepted media types the body is in.
 * @throws HttpError 415, with what is accepted (RFC 9110 §15.5.16, §12.5.3)
 */
function mediaType(req: IncomingMessage, accepts: readonly MediaType[]): MediaType | undefined {
  if (accepts.length === 0) return undefined;
  const coding = req.headers['content-encoding']?.trim().toLowerCase() ?? 'identity';
  if (coding !== 'identity') {
    // 2.8
    throw new HttpError(415, 'The body must not have a Content-Encoding other than identity.', [
      'Accept-Encoding',
      'identity',
    ]);
  }
  const { type, charsets } = parseContentType(req.headers['content-type'] ?? '');
  const found = accepts.find((name) => MEDIA_TYPES[name] === type);
  if (found !== undefined && charsets.every((charset) => charset === 'utf-8')) return found; // 2.8
  const accepted = accepts.map((name) => MEDIA_TYPES[name]).join(', '); // 2.8
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
