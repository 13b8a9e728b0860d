// A document that never changes, compressed once in each content coding. Each coding has its own
// entity tag (RFC 9110 §8.4.1, §8.8.3, §12.5.3).
import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { matches } from './conditional.ts';
import { empty, type Reply } from './reply.ts';

type Coding = 'br' | 'gzip' | 'identity';

/** The bytes of the document in one coding. */
interface Variant {
  readonly coding: Coding;
  readonly body: Buffer;
  readonly headers: readonly string[];
  readonly tag: string;
}

/** 5 makes openapi.json 13 % of its size. 11 makes it 11 % and takes about 70 times as long. */
const BROTLI_QUALITY = 5;
/** A window of 64 KiB is as good for a document of that size, and the process keeps 2 MB less. */
const BROTLI_WINDOW_BITS = 16;

/** Responses share its buffers, so a client costs no memory. */
export class StaticDocument {
  readonly #type: string;
  readonly #headers: readonly string[];
  /** The coding that we prefer comes first. */
  readonly #variants: readonly Variant[];

  private constructor(type: string, headers: readonly string[], variants: readonly Variant[]) {
    this.#type = type;
    this.#headers = headers;
    this.#variants = variants;
  }

  /** Compresses the bytes on other threads. `headers` are those of the 200 response. */
  static async compress(
    bytes: Buffer,
    type: string,
    headers: readonly string[] = [],
  ): Promise<StaticDocument> {
    const params = {
      [constants.BROTLI_PARAM_QUALITY]: BROTLI_QUALITY,
      [constants.BROTLI_PARAM_LGWIN]: BROTLI_WINDOW_BITS,
      [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length,
    };
    const [br, gz] = await Promise.all([
      promisify(brotliCompress)(bytes, { params }),
      promisify(gzip)(bytes),
    ]);
    return new StaticDocument(type, headers, [
      variant('br', br),
      variant('gzip', gz),
      variant('identity', bytes),
    ]);
  }

  /** 200 in the coding that the client prefers, or 304 if it has that one already. */
  reply(request: IncomingHttpHeaders): Reply {
    const { body, headers, tag } = this.#choose(request['accept-encoding']);
    // 8.3
    const condition = request['if-none-match'];
    const cacheControl = 'no-cache';
    if (condition !== undefined && matches(condition, tag)) {
      return { ...empty(304, ['ETag', tag, 'Vary', 'Accept-Encoding']), cacheControl };
    }
    return {
      status: 200,
      type: this.#type,
      body,
      headers: [...headers, ...this.#headers],
      cacheControl,
      isStatic: true,
    };
  }

  #choose(accepted: unknown): Variant {
    const weights = weightsOf(String(accepted ?? ''));
    // RFC 9110 §12.4.1: a client that accepts none of them gets the plain one.
    let best = this.#variants.at(-1)!;
    let weight = 0;
    for (const one of this.#variants) {
      const own = weightOf(one.coding, weights);
      if (own > weight) [best, weight] = [one, own];
    }
    return best;
  }
}

function variant(coding: Coding, body: Buffer): Variant {
  const tag = `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"`;
  const encoding = coding === 'identity' ? [] : ['Content-Encoding', coding];
  return { coding, body, tag, headers: ['ETag', tag, 'Vary', 'Accept-Encoding', ...encoding] };
}

/** `identity` is acceptable unless it is excluded, but less welcome than any coding that is listed. */
const UNLISTED_IDENTITY = 0.0001;

function weightOf(coding: Coding, weights: ReadonlyMap<string, number>): number {
  const weight = weights.get(coding);
  const other = weights.get('*');
  if (coding === 'identity') return weight ?? (other === 0 ? 0 : UNLISTED_IDENTITY);
  return weight ?? other ?? 0;
}

const ELEMENT =
  /^[ \t]*([!#$%&'*+.^_`|~\w-]+)[ \t]*(?:;[ \t]*q=(0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?))?[ \t]*$/i;

/** Weights by coding in lower case. An element that breaks the grammar does not count. */
function weightsOf(accepted: string): Map<string, number> {
  const weights = new Map<string, number>();
  for (const element of accepted.split(',')) {
    const [, name, weight = '1'] = ELEMENT.exec(element) ?? [];
    // RFC 9110 §8.4.1.3
    if (name) weights.set(name.toLowerCase().replace(/^x-gzip$/, 'gzip'), Number(weight));
  }
  return weights;
}
