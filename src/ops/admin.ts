// The admin listener (contract section 7): liveness, readiness and metrics on a private port.
import { HttpError } from '../http/errors.ts';
import type { Exchange } from '../http/exchange.ts';
import { dropBody } from '../http/message.ts';
import { errorReply, type Reply, rawReply, send, text } from '../http/reply.ts';
import type { Handler } from '../server/connection.ts';
import type { UserStore } from '../user.ts';

const ALLOW = 'GET, HEAD';
const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8';

export function adminHandler(
  isStopping: () => boolean,
  store: UserStore,
  exposition: () => string,
): Handler {
  const replyTo = async (exchange: Exchange): Promise<Reply> => {
    exchange.check();
    const { req } = exchange;
    const [, path] = /^(?:http:\/\/[^/?]*)?([^?]*)/i.exec(req.url!)!; // RFC 9112 §3.2.2
    if (!['/live', '/ready', '/metrics'].includes(path!)) throw new HttpError(404);
    const isAllowed = req.method === 'GET' || req.method === 'HEAD';
    if (!isAllowed) throw new HttpError(405, undefined, ['Allow', ALLOW]);
    if (path === '/live') return text(200, 'live\n'); // 7.1
    if (path === '/metrics') return { status: 200, type: METRICS_TYPE, body: exposition() }; // 7.3
    if (isStopping()) return text(503, 'not ready: stopping\n'); // 6.2
    const unavailable = ({ message, cause = message }: Error) => {
      const reason = (cause as Error).message ?? cause; // an error or a text
      return text(503, `not ready: store unavailable: ${reason}\n`); // 7.2
    };
    return store.ping(exchange).then(() => text(200, 'ready\n'), unavailable);
  };
  return {
    allow: ALLOW,
    refusal: (err) => rawReply(errorReply(err)),
    async handle(exchange) {
      dropBody(exchange.req); // before the store responds
      const reply = await replyTo(exchange).catch(errorReply);
      send(exchange, { ...reply, cacheControl: 'no-store' }, [], () => {});
    },
  };
}
