// A document that never changes, compressed once in each content coding. Each coding has its own entity
// tag (RFC 9110 §8.4.1, §8.8.3, §12.5.3).
import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { listsTag } from './conditional.ts';
import { empty, type Reply } from './reply.ts';

type Coding = 'br' | 'gzip' | 'identity';

interface Variant {
  readonly coding: Coding;
  readonly body: Buffer;
  readonly tag: string;
  readonly headers: readonly string[];
}

/** 5 compresses openapi.json to 13 % of its size. 11 gives 11 % and takes about 70 times as long. */
const BROTLI_QUALITY = 5;
/** A larger window than 64 KiB saves nothing for such documents and costs the process 2 MB. */
const BROTLI_WINDOW_BITS = 16;

/** All responses share its buffers, so a client costs no memory. */
export class StaticDocument {
  readonly #type: string;
  readonly #headers: readonly string[];
  /** In order of preference. */
  readonly #variants: readonly Variant[];

  private constructor(type: string, headers: readonly string[], variants: readonly Variant[]) {
    this.#type = type;
    this.#headers = headers;
    this.#variants = variants;
  }

  /** Compresses on other threads. `headers` are those of the 200 response. */
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

  /** Returns 200 in the coding that the client prefers, or 304 if the client has that already. */
  reply(request: IncomingHttpHeaders): Reply {
    const { body, headers, tag } = this.#choose(request['accept-encoding']);
    const condition = request['if-none-match'];
    const cacheControl = 'no-cache'; // 2.17
    if (condition !== undefined && listsTag(condition, tag)) {
      return { ...empty(304, ['ETag', tag, 'Vary', 'Accept-Encoding']), cacheControl }; // 8.3
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
    const weights = parseWeights(String(accepted ?? ''));
    const weightOf = ({ coding }: Variant) => {
      const listed = weights.get(coding);
      const other = weights.get('*');
      if (coding !== 'identity') return listed ?? other ?? 0;
      // Identity is acceptable unless excluded, but any listed coding is preferred.
      return listed ?? (other === 0 ? 0 : Number.MIN_VALUE);
    };
    const best = this.#variants.reduce((a, b) => (weightOf(b) > weightOf(a) ? b : a));
    // RFC 9110 §12.4.1: a client that accepts none of them gets the document without coding.
    return weightOf(best) > 0 ? best : this.#variants.at(-1)!;
  }
}

function variant(coding: Coding, body: Buffer): Variant {
  const tag = `"${createHash('sha256').update(body).digest('base64url').slice(0, 22)}"`;
  const encoding = coding === 'identity' ? [] : ['Content-Encoding', coding];
  return { coding, body, tag, headers: ['ETag', tag, 'Vary', 'Accept-Encoding', ...encoding] };
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
