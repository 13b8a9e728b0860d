// A load balancer for tests. Sends each request over a new connection to a ready replica, or to the
// next one if it can't connect.
import { once } from 'node:events';
import { createServer, type IncomingMessage, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import { until } from '../support/until.ts';

/** Interval between /ready checks. */
const EVERY_MS = 100;

/** The address of a replica. */
export type Ports = readonly [api: number, admin: number];

/** Balances over the replicas, once all of them are ready. */
export async function startBalancer(
  replicas: readonly Ports[],
): Promise<AsyncDisposable & { readonly port: number }> {
  const ready = new Set<number>();
  const check = async ([port, adminPort]: Ports) => {
    const isReady = await fetch(`http://127.0.0.1:${adminPort}/ready`).then(
      async (response) => (await response.text()) !== '' && response.ok,
      () => false,
    );
    if (isReady) ready.add(port);
    else ready.delete(port);
  };
  // Replicas can listen before they have connected to the store.
  await until(async () => {
    await Promise.all(replicas.map(check));
    return ready.size === replicas.length;
  });
  let isClosed = false;
  for (const replica of replicas) {
    // Checks run one at a time, because a late response would overwrite a newer one.
    (async () => {
      while (!isClosed) await pause(EVERY_MS).then(() => check(replica));
    })();
  }
  let turn = 0;
  const server = createServer(async (req, res) => {
    const body = Buffer.concat(await req.toArray());
    let fault: unknown = 'no replica is ready';
    for (let attempt = 0; attempt < replicas.length; attempt++) {
      const ports = [...ready];
      const port = ports[turn++ % ports.length];
      if (port === undefined) break;
      const { method, url: path, headers } = req;
      const asked = request({ host: '127.0.0.1', port, method, path, headers, agent: false });
      try {
        asked.end(body);
        const [response] = (await once(asked, 'response')) as [IncomingMessage];
        const { connection: _, ...rest } = response.headers;
        res.writeHead(response.statusCode!, rest);
        return response.pipe(res);
      } catch (err) {
        fault = err;
        if ((err as { code?: string }).code !== 'ECONNREFUSED') break;
      }
    }
    return res.writeHead(502).end(String(fault));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      isClosed = true;
      server.close();
      server.closeAllConnections();
    },
  };
}
