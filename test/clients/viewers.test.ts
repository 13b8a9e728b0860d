// Swagger UI shows openapi.json and sends every operation with its prefilled values. The request
// leaves the browser, and has no value from an example that the visitor did not choose.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { type Browser, chromium, type Request } from 'playwright-core';
import { find } from '../support/daemon.ts';
import { DOCUMENT, type JsonObject } from '../support/openapi.ts';
import { type Program, start } from '../support/program.ts';
import { MISSING, SWAGGER_UI_FOLDER } from './toolbox.ts';

const PAGE = (url: string) => `<!doctype html>
<link rel="stylesheet" href="swagger-ui.css"><div id="ui"></div>
<script src="swagger-ui-bundle.js"></script>
<script>SwaggerUIBundle({ url: '${url}/openapi.json', dom_id: '#ui', docExpansion: 'list',
  tryItOutEnabled: true, validatorUrl: null })</script>`;

const TYPES: Readonly<Record<string, string>> = {
  '/swagger-ui.css': 'text/css; charset=utf-8',
  '/swagger-ui-bundle.js': 'text/javascript; charset=utf-8',
};

const operations = Object.entries(DOCUMENT.paths!).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, part]) => ({ method, path, part })),
);

/** True if the operation refuses its example, which has no credentials or wrong ones. */
function isUnauthorized({ operationId, security }: JsonObject): boolean {
  const schemes = security as unknown as readonly object[];
  const needsCredentials =
    schemes.length > 0 && schemes.every((one) => Object.keys(one).length > 0);
  return String(operationId) === 'issueToken' || needsCredentials;
}

describe('Swagger UI', { skip: MISSING.swaggerUi, timeout: 300_000 }, () => {
  let browser: Browser;
  let viewer: Server;

  before(async () => {
    const executablePath = process.env.CHROMIUM ?? find('chromium')!;
    // Chromium's sandbox refuses to run as root.
    browser = await chromium.launch({ executablePath, chromiumSandbox: userInfo().uid !== 0 });
    viewer = createServer(({ url = '' }, res) => {
      const { pathname, searchParams } = new URL(url, 'http://x');
      const type = TYPES[pathname];
      const file = () => readFileSync(join(SWAGGER_UI_FOLDER, pathname));
      const body = type === undefined ? PAGE(searchParams.get('api') ?? '') : file();
      res.writeHead(200, { 'Content-Type': type ?? 'text/html; charset=utf-8' }).end(body);
    }).listen(0, '127.0.0.1');
    await once(viewer, 'listening');
  });
  after(async () => {
    await browser?.close();
    viewer?.close();
  });

  /** Opens the operation, presses its button, and resolves with the request that is sent. */
  async function execute(program: Program, operationId: string): Promise<Request> {
    const context = await browser.newContext();
    const page = await context.newPage();
    page.setDefaultTimeout(20_000);
    // Disables the cache. Otherwise Chromium would revalidate /openapi.json, already read.
    await page.route('**', (route) => route.continue());
    const { port } = viewer.address() as AddressInfo;
    await page.goto(`http://127.0.0.1:${port}/?api=${program.url}`);
    const block = page.locator(`[id$="-${operationId}"]`);
    await block.locator('.opblock-summary-control').click();
    const isCall = (request: Request) => request.url().startsWith(program.url);
    const sent = page.waitForRequest(isCall);
    await block.getByRole('button', { name: 'Execute' }).click();
    const request = await sent;
    await request.response();
    return request;
  }

  for (const { method, path, part } of operations) {
    const id = String(part.operationId);
    test(`8.1 sends ${method.toUpperCase()} ${path} with its prefilled values`, async () => {
      await using program = await start({ CORS_ORIGIN: '*' });
      if (path.includes('{id}')) await fetch(`${program.url}/users`, exampleOf('createUser'));
      const request = await execute(program, id);
      const expected = exampleOf(id);
      assert.equal(request.url(), program.url + path.replace('{id}', '1'));
      assert.deepEqual(JSON.parse(request.postData() ?? '{}'), JSON.parse(expected.body ?? '{}'));
      const headers = await request.allHeaders();
      for (const name of ['if-match', 'if-none-match', 'x-request-id']) {
        assert.equal(headers[name], undefined, name);
      }
      const status = (await request.response())!.status();
      assert.equal(status < 300 ? 'accepted' : status, isUnauthorized(part) ? 401 : 'accepted');
    });
  }
});

/** Returns the request of an operation's example. */
function exampleOf(id: string): {
  method: string;
  body?: string;
  headers?: Record<string, string>;
} {
  const { method, part } = operations.find(({ part }) => String(part.operationId) === id)!;
  const content = part.requestBody?.content as JsonObject | undefined;
  if (content === undefined) return { method };
  const [type, { example } = {} as JsonObject] = Object.entries(content)[0]!;
  return { method, body: JSON.stringify(example), headers: { 'Content-Type': type } };
}
