// The admin listener (contract section 7): liveness, readiness and metrics, on a port of its own that
// is not for the public.
import type { Handler } from '../http/connection.ts';
import { errorReply, HttpError } from '../http/errors.ts';
import type { Exchange } from '../http/exchange.ts';
import { endsConnection, type Reply, rawReply, send, text } from '../http/reply.ts';

/** What the admin listener asks. */
export interface AdminOptions {
  /** Why requests would not be served; undefined when they would. */
  readonly reasonNotReady: () => Promise<string | undefined>;
  /** The metrics in Prometheus' text format. */
  readonly metrics: () => string;
}

const COMMON = ['X-Content-Type-Options', 'nosniff'];
const ALLOW = 'GET, HEAD';

/** Prometheus' text exposition format. */
const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

/** Answers `/live`, `/ready` and `/metrics`. */
export class Admin implements Handler {
  readonly #options: AdminOptions;
  readonly allow = ALLOW;

  constructor(options: AdminOptions) {
    this.#options = options;
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
    const pages: Record<string, () => Promise<Reply>> = {
      '/live': async () => text(200, 'live\n'), // 7.1
      '/ready': () => this.#ready(),
      '/metrics': async () => ({
        status: 200,
        type: METRICS_TYPE,
        body: this.#options.metrics(),
      }),
    };
    const [path = ''] = req.url!.split('?', 1);
    const page = Object.hasOwn(pages, path) ? pages[path] : undefined;
    if (page === undefined) throw new HttpError(404);
    if (req.method !== 'GET' && req.method !== 'HEAD') {
      throw new HttpError(405, undefined, ['Allow', ALLOW]);
    }
    return page();
  }

  async #ready(): Promise<Reply> {
    // 7.2
    const reason = await this.#options.reasonNotReady();
    return reason === undefined ? text(200, 'ready\n') : text(503, `not ready: ${reason}\n`);
  }
}
