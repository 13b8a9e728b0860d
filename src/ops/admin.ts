// The admin listener (contract section 7): liveness, readiness and metrics on a private port.
import type { Handler } from '../http/connection.ts';
import { errorReply, HttpError } from '../http/errors.ts';
import type { Exchange } from '../http/exchange.ts';
import { endsConnection, type Reply, rawReply, send, text } from '../http/reply.ts';

const COMMON = ['X-Content-Type-Options', 'nosniff'];
const ALLOW = 'GET, HEAD';

const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** Serves `/live`, `/ready` and `/metrics`. */
export class Admin implements Handler {
  readonly #reasonNotReady: () => Promise<string | undefined> | string;
  readonly #metrics: () => string;
  readonly allow = ALLOW;

  /** @param reasonNotReady returns undefined if the service is ready */
  constructor(reasonNotReady: () => Promise<string | undefined> | string, metrics: () => string) {
    this.#reasonNotReady = reasonNotReady;
    this.#metrics = metrics;
  }

  handle(exchange: Exchange): void {
    this.#reply(exchange)
      .catch(errorReply)
      .then((reply) => {
        const isLast = exchange.connection.isBroken || endsConnection(exchange, reply);
        const uncached = { ...reply, cacheControl: 'no-store' };
        send(exchange, uncached, COMMON.slice(), isLast, () => {});
      });
  }

  refusal(err: HttpError): string {
    return rawReply(errorReply(err), COMMON);
  }

  async #reply({ req }: Exchange): Promise<Reply> {
    const [path] = req.url!.split('?', 1);
    const isKnown = path === '/live' || path === '/ready' || path === '/metrics';
    if (!isKnown) throw new HttpError(404);
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      throw new HttpError(405, undefined, ['Allow', ALLOW]);
    }
    if (path === '/live') return text(200, 'live\n'); // 7.1
    if (path === '/metrics') return { status: 200, type: METRICS_TYPE, body: this.#metrics() }; // 7.3
    const reason = await this.#reasonNotReady(); // 7.2
    return reason === undefined ? text(200, 'ready\n') : text(503, `not ready: ${reason}\n`);
  }
}
