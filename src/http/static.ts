// A document that never changes, compressed once in each content coding. Each coding has its own entity
// tag (RFC 9110 §8.4.1, §8.8.3, §12.5.3).
import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { listsTag } from './conditional.ts';
import { empty, type Reply } from './reply.ts';

/** A document as a response. All responses share its buffers, so a client costs no memory. */
export interface StaticDocument {
  /** Returns 200 in the coding that the client prefers, or 304 if the client has that already. */
  reply(request: IncomingHttpHeaders): Reply;
}

interface Variant {
  readonly coding: 'br' | 'gzip' | 'identity';
  readonly tag: string;
  readonly found: Reply;
  readonly notModified: Reply;
}

/** 5 compresses openapi.json to 13 % of its size. 11 gives 11 % and takes about 70 times as long. */
const BROTLI_QUALITY = 5;
/** A larger window than 64 KiB saves nothing for such documents and costs the process 2 MB. */
const BROTLI_WINDOW_BITS = 16;

/** Compresses on other threads. `headers` are those of the 200 response. */
export async function compress(
  body: Buffer,
  type: string,
  headers: readonly string[] = [],
): Promise<StaticDocument> {
  const params = {
    [constants.BROTLI_PARAM_QUALITY]: BROTLI_QUALITY,
    [constants.BROTLI_PARAM_LGWIN]: BROTLI_WINDOW_BITS,
    [constants.BROTLI_PARAM_SIZE_HINT]: body.length,
  };
  const [br, gz] = await Promise.all([
    promisify(brotliCompress)(body, { params }),
    promisify(gzip)(body),
  ]);
  // In order of preference.
  const variants = [
    variant('br', br, type, ['Content-Encoding', 'br', ...headers]),
    variant('gzip', gz, type, ['Content-Encoding', 'gzip', ...headers]),
    variant('identity', body, type, headers),
  ];
  return {
    reply: (request) => {
      const { tag, found, notModified } = choose(variants, request['accept-encoding'] ?? '');
      const condition = request['if-none-match'];
      return condition !== undefined && listsTag(condition, tag) ? notModified : found; // 8.3
    },
  };
}

function variant(
  coding: Variant['coding'],
  body: Buffer,
  type: string,
  headers: readonly string[],
): Variant {
  const tag = `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"`;
  const common = ['ETag', tag, 'Vary', 'Accept-Encoding'];
  const cacheControl = 'no-cache'; // 2.17
  const notModified = { ...empty(304, common), cacheControl };
  const all = [...common, ...headers];
  const found = { status: 200, type, body, headers: all, cacheControl, isStatic: true };
  return { coding, tag, found, notModified };
}

function choose(variants: readonly Variant[], accepted: string): Variant {
  const weights = parseWeights(accepted);
  // "*" doesn't cover identity: a client that accepts any coding gets a compressed document.
  const weightOf = ({ coding }: Variant) =>
    weights.get(coding) ?? (coding === 'identity' ? 0 : weights.get('*')) ?? 0;
  const best = variants.reduce((a, b) => (weightOf(b) > weightOf(a) ? b : a));
  // RFC 9110 §12.4.1: a client that accepts none of them gets the document without coding.
  return weightOf(best) > 0 ? best : variants.at(-1)!;
}

const ELEMENT =
  /^[ \t]*([!#$%&'*+.^_`|~\w-]+)(?:[ \t]*;[ \t]*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?))?[ \t]*$/i;

/** Returns weights by coding in lower case. Ignores malformed elements. */
function parseWeights(accepted: string): Map<string, number> {
  const weights = new Map<string, number>();
  for (const element of accepted.split(',')) {
    const [, name, weight = '1'] = ELEMENT.exec(element) ?? [];
    // RFC 9110 §8.4.1.3: x-gzip is gzip.
    if (name) weights.set(name.toLowerCase().replace(/^x-gzip$/, 'gzip'), Number(weight));
  }
  return weights;
}
