// Starts a service, sends a request of every kind, and closes it with a connection kept alive. It has no
// imports, so that package.test.ts can write it as a module of either kind for each test runner.
import type { start } from '../../src/start.ts';

/** The statuses that a service returns to `everyRoute`. */
export const STATUSES = '200 200 200 200 201 200 200 200 200 200 200 200 200 404 400 200 200 200';

/** @throws an Error if a header has a fake date */
export async function everyRoute(begin: typeof start): Promise<string> {
  const { Agent, request } = process.getBuiltinModule('node:http');
  const service = await begin({ ADMIN_PORT: 0 });
  const { user, password } = service.credential;
  const agent = new Agent({ keepAlive: true });
  const statuses: (number | undefined)[] = [];
  const send = (method: string, url: string, body = '', authorization = '') =>
    new Promise<string>((resolve, reject) => {
      const type = body === '' ? {} : { 'content-type': 'application/json' };
      const headers = { ...type, authorization, 'content-length': body.length };
      const req = request(url, { method, agent, headers }, (res) => {
        statuses.push(res.statusCode);
        if (Date.parse(String(res.headers.date)) < 1e12) reject(new Error('a fake date'));
        res.setEncoding('utf8');
        res.toArray().then((parts) => resolve(parts.join('')), reject);
      });
      req.on('error', reject).end(body);
    });
  const { url, adminUrl } = service;
  await send('GET', url);
  const login = JSON.stringify({ id: user, pw: password });
  const { token } = JSON.parse(await send('POST', `${url}/token`, login));
  await send('GET', `${url}/notes`, '', `Bearer ${token}`);
  await send('GET', `${url}/protected`, '', `Basic ${btoa(`${user}:${password}`)}`);
  await send('POST', `${url}/users`, '{"name":"Ann","email":"ann@example.com"}');
  await send('GET', `${url}/users`);
  await send('GET', `${url}/users?limit=1`);
  await send('GET', `${url}/users/1`);
  await send('PUT', `${url}/users/1`, '{"name":"Ben","email":"ben@example.com"}');
  await send('PATCH', `${url}/users/1`, '{"name":"Cid"}');
  await send('DELETE', `${url}/users/1`);
  await send('GET', `${url}/openapi.json`);
  await send('GET', `${url}/docs`);
  await send('GET', `${url}/none`);
  await send('POST', `${url}/token`, 'x'.repeat(10_000));
  for (const path of ['/live', '/ready', '/metrics']) await send('GET', `${adminUrl}${path}`);
  await service.close();
  agent.destroy();
  return statuses.join(' ');
}
