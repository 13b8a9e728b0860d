// The page of GET /docs in a browser (contract 8.2): contents, use with mouse and keyboard, and
// security. Needs Chromium; CHROMIUM can have its path.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { userInfo } from 'node:os';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import {
  type Browser,
  type BrowserContextOptions,
  chromium,
  type Locator,
  type Page,
} from 'playwright-core';
import { start } from '../src/start.ts';
import { send } from './support/client.ts';
import { find } from './support/daemon.ts';
import { install, measure, type Report } from './support/lighthouse.ts';

const CHROMIUM = process.env.CHROMIUM ?? find('chromium');
const PASSWORD = 'correct: hörse';

const HTML = readFileSync(new URL('../src/docs.html', import.meta.url), 'utf8');
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** A part of the OpenAPI document. */
// biome-ignore lint/suspicious/noExplicitAny: other tests check the document's shape
type Part = any;

describe('the file of the page', () => {
  test('it contains no route except that of its document', () => {
    const script = /<script.*<\/script>/s.exec(HTML)?.[0] ?? '';
    assert.match(script, /openapi\.json/);
    assert.doesNotMatch(script, /\/(?:users|notes|protected|token)\b/);
  });

  test('it stores nothing and creates no markup from strings', () =>
    assert.doesNotMatch(
      HTML,
      /Storage|cookie|indexedDB|innerHTML|outerHTML|insertAdjacent|write\(/,
    ));
});

const skip = CHROMIUM === undefined && 'no chromium is installed, and CHROMIUM names none';

describe('the page in a browser', { skip, timeout: 900_000 }, () => {
  let browser: Browser;
  let service: Awaited<ReturnType<typeof start>>;
  let api: Part;

  before(async () => {
    service = await start({ AUTH_PASSWORD: PASSWORD });
    api = JSON.parse((await send(`${service.url}/openapi.json`)).body);
    // Chromium's sandbox refuses to run as root.
    const chromiumSandbox = userInfo().uid !== 0;
    browser = await chromium.launch({ executablePath: CHROMIUM!, chromiumSandbox });
  });
  after(async () => {
    await browser?.close();
    await service.close();
  });

  /** Opens the page in its own context. Disposing it fails if the page did something forbidden. */
  async function open(options: BrowserContextOptions & { path?: string } = {}) {
    const context = await browser.newContext(options);
    const page = await context.newPage();
    const faults: string[] = [];
    page.on('pageerror', (err) => faults.push(String(err.stack)));
    page.on('dialog', (dialog) => faults.push(`dialog: ${dialog.message()}`));
    page.on('console', (message) => {
      // The browser reports 4xx and 5xx responses as errors, but the page shows them on purpose.
      const isResponse = message.text().startsWith('Failed to load resource: the server responded');
      if (message.type() !== 'log' && !isResponse) faults.push(message.text());
    });
    page.on('request', (request) => {
      const isOwn = request.url().startsWith(service.url) || request.url() === 'data:,';
      if (!isOwn) faults.push(`request to ${request.url()}`);
    });
    await page.goto(service.url + (options.path ?? '/docs'));
    await page.locator('details').first().waitFor();
    return {
      page,
      async [Symbol.asyncDispose]() {
        await context.close();
        assert.deepEqual(faults, []);
      },
    };
  }

  async function createUsers(...names: string[]): Promise<number[]> {
    const ids: number[] = [];
    for (const name of names) {
      const email = `${crypto.randomUUID()}@example.com`;
      const { body } = await send(`${service.url}/users`, {
        method: 'POST',
        body: { name, email },
      });
      ids.push(JSON.parse(body).id);
    }
    return ids;
  }

  /** Opens the form of an operation with the mouse. */
  async function operation(page: Page, name: string): Promise<Locator> {
    const form = page.getByRole('form', { name, exact: true });
    const details = page
      .locator('details')
      .filter({ has: page.locator(`form[aria-label="${name}"]`) });
    await details.locator('summary').click();
    return form;
  }

  async function sendForm(form: Locator): Promise<string> {
    await form.getByRole('button', { name: 'Send' }).click();
    return statusOf(form);
  }

  async function statusOf(form: Locator): Promise<string> {
    const status = form.getByRole('status').filter({ hasText: /^(\d{3}|No response)/ });
    return (await status.textContent()) ?? '';
  }

  const bodyOf = (form: Locator) => form.getByRole('region', { name: 'Response body' });
  const headersOf = (form: Locator) => form.getByRole('region', { name: 'Response headers' });

  test('it shows every operation with parameters, fields, media types, responses and headers', async () => {
    await using opened = await open();
    const { page } = opened;
    const resolve = (part: Part): Part =>
      part.$ref === undefined
        ? part
        : resolve(
            part.$ref
              .slice(2)
              .split('/')
              .reduce((at: Part, key: string) => at[key], api),
          );
    assert.equal(await page.title(), api.info.title);
    let count = 0;
    for (const [path, methods] of Object.entries<Part>(api.paths)) {
      for (const [method, op] of Object.entries<Part>(methods)) {
        count++;
        const details = page.locator(`details[id="${op.operationId}"]`);
        const text = (await details.textContent()) ?? '';
        const has = (word: string) => assert.ok(text.includes(word), `${op.operationId}: ${word}`);
        assert.ok(text.startsWith(`${method.toUpperCase()}${path}`), text);
        for (const parameter of op.parameters.map(resolve)) {
          const label = details.locator('label', { hasText: new RegExp(`^${parameter.name}$`) });
          assert.equal(await label.count(), 1);
        }
        const content: Part = op.requestBody === undefined ? {} : resolve(op.requestBody).content;
        for (const [type, { schema }] of Object.entries<Part>(content)) {
          has(type);
          for (const field of Object.keys(resolve(schema).properties)) has(field);
        }
        for (const [status, response] of Object.entries<Part>(op.responses)) {
          has(status);
          for (const [header, part] of Object.entries<Part>(resolve(response).headers ?? {})) {
            const schema = resolve(resolve(part).schema);
            for (const word of [header, schema.enum ?? [], schema.const ?? []].flat()) has(word);
          }
          for (const type of Object.keys(resolve(response).content ?? {})) has(type);
        }
      }
    }
    assert.equal(await page.locator('details').count(), count);
    assert.ok(count >= 12);
  });

  test('with the mouse: it gets a token, reads the note, and sends Basic credentials', async () => {
    await using opened = await open();
    const { page } = opened;
    const note = await operation(page, 'GET /notes');
    assert.match(await sendForm(note), /^401 Unauthorized in \d+ ms$/);
    await page.getByLabel('User', { exact: true }).fill('admin');
    await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
    await page.getByRole('button', { name: 'Get a token' }).click();
    await page.getByText('Token received.').waitFor();
    assert.match(
      await page.getByLabel('Token', { exact: true }).inputValue(),
      /^[\w-]+\.[\w-]+\.[\w-]+$/,
    );
    await note.getByRole('button', { name: 'Send' }).click();
    await note.getByText(/^200 OK/).waitFor();
    assert.equal(JSON.parse((await bodyOf(note).textContent())!).title, 'Welcome');
    const greeting = await operation(page, 'GET /protected');
    assert.match(await sendForm(greeting), /^200 OK/);
    assert.equal(await bodyOf(greeting).textContent(), 'Welcome, Administrator.\n');
  });

  test('with only the keyboard: a token, and the note', async () => {
    await using opened = await open();
    const { page } = opened;
    const { keyboard } = page;
    const focused = () => page.evaluate<string>('document.activeElement.textContent');
    /** Presses Tab until the focus is on an element that starts with these words. */
    const tabTo = async (start: string) => {
      for (let i = 0; i < 40; i++) {
        await keyboard.press('Tab');
        if ((await focused()).startsWith(start)) return;
      }
      assert.fail(`Tab does not reach ${start}`);
    };
    await keyboard.press('Tab');
    assert.equal(await focused(), 'Skip to the routes');
    await keyboard.press('Tab');
    await keyboard.type('admin');
    await keyboard.press('Tab');
    await keyboard.type(PASSWORD);
    await keyboard.press('Enter');
    await page.getByText('Token received.').waitFor();
    await tabTo('GET/notes');
    await keyboard.press('Enter');
    await tabTo('Send');
    await keyboard.press('Enter');
    const note = page.getByRole('form', { name: 'GET /notes' });
    assert.match(await statusOf(note), /^200 OK/);
    assert.equal(await focused(), 'Send');
    await keyboard.press('Tab');
    assert.equal(await focused(), 'Copy as curl');
    await keyboard.press('Tab');
    assert.match(await focused(), /"contents"/);
  });

  test('the skip link appears on focus and skips the credentials', async () => {
    await using opened = await open();
    const { keyboard } = opened.page;
    const box = (selector: string) => opened.page.locator(selector).boundingBox();
    const heading = await box('h1');
    assert.ok((await box('.skip'))!.y < 0);
    await keyboard.press('Tab');
    // It becomes visible and moves nothing.
    assert.ok((await box('.skip'))!.y > 0);
    assert.deepEqual(await box('h1'), heading);
    await keyboard.press('Enter');
    await keyboard.press('Tab');
    const text = await opened.page.evaluate<string>('document.activeElement.textContent');
    assert.match(text, /^GET/);
  });

  test('it creates a user; a stale tag changes nothing, the latest tag does', async () => {
    await using opened = await open();
    const { page } = opened;
    const email = `${crypto.randomUUID()}@example.com`;
    const create = await operation(page, 'POST /users');
    await create
      .getByLabel('body', { exact: true })
      .fill(JSON.stringify({ name: 'Ada Lovelace', email }));
    assert.match(await sendForm(create), /^201 Created/);
    const { id } = JSON.parse((await bodyOf(create).textContent())!);
    assert.match(
      (await headersOf(create).textContent())!,
      new RegExp(`^location: /users/${id}$`, 'm'),
    );

    const patch = await operation(page, 'PATCH /users/{id}');
    await patch.getByLabel('id', { exact: true }).fill(String(id));
    await patch.getByLabel('If-Match', { exact: true }).fill('"7"');
    await patch.getByLabel('body', { exact: true }).fill('{"name": "Ada King"}');
    assert.match(await sendForm(patch), /^412 Precondition Failed/);
    assert.match((await bodyOf(patch).textContent())!, /user's current version fails/);
    // The tag of the 201 belongs to this user.
    await patch.getByRole('button', { name: 'Use "1"' }).first().click();
    assert.equal(await patch.getByLabel('If-Match', { exact: true }).inputValue(), '"1"');
    await patch.getByRole('button', { name: 'Send' }).click();
    await patch.getByText(/^200 OK/).waitFor();
    const user = JSON.parse((await send(`${service.url}/users/${id}`)).body);
    assert.deepEqual(user, { id, name: 'Ada King', email });
    assert.equal(await patch.getByRole('button', { name: 'Use "2"' }).count(), 2);
  });

  test('it offers a tag for its own user only, and not after a deletion', async () => {
    const [one, two] = await createUsers('One', 'Two');
    await using opened = await open();
    const { page } = opened;
    const get = await operation(page, 'GET /users/{id}');
    const remove = await operation(page, 'DELETE /users/{id}');
    const offered = () => remove.getByRole('button', { name: /^Use / }).count();
    await get.getByLabel('id', { exact: true }).fill(String(one));
    assert.match(await sendForm(get), /^200 OK/);
    const id = remove.getByLabel('id', { exact: true });
    await id.fill(String(two));
    assert.equal(await offered(), 0);
    await id.fill(String(one));
    assert.equal(await offered(), 2);
    await remove.getByRole('button', { name: 'Use "1"' }).first().click();
    assert.match(await sendForm(remove), /^200 OK/);
    assert.equal(await offered(), 0);
  });

  test('a copied curl command has the same effect in a shell as the form', async () => {
    const permissions = ['clipboard-read', 'clipboard-write'];
    await using opened = await open({ permissions });
    const { page } = opened;
    await page.getByLabel('User', { exact: true }).fill('admin');
    await page.getByLabel('Password', { exact: true }).fill(PASSWORD);
    /** Runs the command; returns the status line and the body that it prints. */
    const run = async (form: Locator) => {
      await form.getByRole('button', { name: 'Copy as curl' }).click();
      await form.getByText(/^Copied\./).waitFor();
      const command = await page.evaluate<string>('navigator.clipboard.readText()');
      assert.equal(await bodyOf(form).textContent(), command);
      // The call is asynchronous, because the service runs in this process.
      const { stdout } = await promisify(execFile)('bash', ['-c', command]);
      const [head = '', body = ''] = stdout.split('\r\n\r\n');
      return [head.split('\r\n')[0], body];
    };
    const protectedRoute = await operation(page, 'GET /protected');
    assert.deepEqual(await run(protectedRoute), ['HTTP/1.1 200 OK', 'Welcome, Administrator.\n']);

    const create = await operation(page, 'POST /users');
    const name = `@'"\\ $HOME $(id) \`id\` !! \n\t%s ';id;' ${crypto.randomUUID()}`;
    const email = `o'neil+${crypto.randomUUID()}@example.com`;
    const body = create.getByLabel('body', { exact: true });
    // The body starts with a line break and has a character of two UTF-16 units.
    await body.fill(`\n${JSON.stringify({ name: `${name}😀`, email }, null, 2)}`);
    const [status, created] = await run(create);
    assert.equal(status, 'HTTP/1.1 201 Created');
    const user = JSON.parse(created!);
    assert.equal(user.name, `${name}😀`);

    const list = await operation(page, 'GET /users');
    await list.getByLabel('email', { exact: true }).fill(email);
    assert.deepEqual(JSON.parse((await run(list))[1]!), [user]);

    const patch = await operation(page, 'PATCH /users/{id}');
    await patch.getByLabel('id', { exact: true }).fill(String(user.id));
    await patch.getByLabel('If-Match', { exact: true }).fill('"1"');
    await patch
      .getByLabel('Content-Type', { exact: true })
      .selectOption('application/merge-patch+json');
    await patch.getByLabel('body', { exact: true }).fill(`{"name": "It's"}`);
    assert.equal((await run(patch))[0], 'HTTP/1.1 200 OK');
    assert.equal((await run(patch))[0], 'HTTP/1.1 412 Precondition Failed');
  });

  test('without access to the clipboard it shows the command', async () => {
    await using opened = await open();
    const { page } = opened;
    await page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })");
    const form = await operation(page, 'GET /');
    await form.getByRole('button', { name: 'Copy as curl' }).click();
    await form.getByText('Copy this command.').waitFor();
    assert.equal(await bodyOf(form).textContent(), `curl -i -X GET '${service.url}/'`);
  });

  test('it sends the chosen media type, with a matching example', async () => {
    await using opened = await open();
    const form = await operation(opened.page, 'POST /token');
    await form
      .getByLabel('Content-Type', { exact: true })
      .selectOption('application/x-www-form-urlencoded');
    assert.match(await form.getByLabel('body', { exact: true }).inputValue(), /^id=admin&pw=/);
    await form
      .getByLabel('body', { exact: true })
      .fill(String(new URLSearchParams({ id: 'admin', pw: PASSWORD })));
    assert.match(await sendForm(form), /^200 OK/);
    assert.match(await opened.page.getByLabel('Token', { exact: true }).inputValue(), /^ey/);
  });

  test('of two concurrent requests, it shows the response of the second', async () => {
    const page = await (await browser.newContext()).newPage();
    await page.goto(`${service.url}/docs`);
    const form = await operation(page, 'GET /');
    const first = Promise.withResolvers<void>();
    let count = 0;
    await page.route(`${service.url}/`, async (route) => {
      const body = ++count === 1 ? 'first' : 'second';
      if (count === 1) await first.promise;
      await route.fulfill({ body });
    });
    const button = form.getByRole('button', { name: 'Send' });
    await button.click();
    await button.click();
    await bodyOf(form).getByText('second').waitFor();
    const late = page.waitForResponse(`${service.url}/`);
    first.resolve();
    await (await late).finished();
    // Waits until another response has arrived.
    await page.evaluate("fetch('docs').then((res) => res.text())");
    assert.equal(await bodyOf(form).textContent(), 'second');
    await page.context().close();
  });

  test('a query keeps every character of a value', async () => {
    const email = `a+b&c=d#e%20${crypto.randomUUID()}@example.com`;
    await send(`${service.url}/users`, { method: 'POST', body: { name: 'Plus', email } });
    await using opened = await open();
    const list = await operation(opened.page, 'GET /users');
    await list.getByLabel('email', { exact: true }).fill(email);
    assert.match(await sendForm(list), /^200 OK/);
    assert.equal(JSON.parse((await bodyOf(list).textContent())!)[0].email, email);
  });

  test('hostile names are text', async () => {
    const hostile = '<img src=x onerror=alert(1)><script>alert(2)</script>';
    const [id] = await createUsers(hostile);
    await using opened = await open();
    const { page } = opened;
    const form = await operation(page, 'GET /users/{id}');
    await form.getByLabel('id', { exact: true }).fill(String(id));
    assert.match(await sendForm(form), /^200 OK/);
    assert.equal(JSON.parse((await bodyOf(form).textContent())!).name, hostile);
    assert.equal(await page.locator('img').count(), 0);
    assert.equal(await page.locator('script').count(), 1);
  });

  test('the browser refuses markup from strings, and requests to other origins', async () => {
    const page = await (await browser.newContext()).newPage();
    await page.goto(`${service.url}/docs`);
    const refused = (code: string) =>
      page.evaluate<string>(`(async () => { ${code} })().then(() => 'done', (err) => err.name)`);
    assert.equal(await refused("document.body.innerHTML = '<b>'"), 'TypeError');
    assert.equal(await refused("await fetch('http://127.0.0.1:9/')"), 'TypeError');
    assert.equal(await refused(`await fetch('${service.url}/')`), 'done');
    await page.context().close();
  });

  test('"Forget" and closing the page drop credentials, and nothing is stored', async () => {
    await using opened = await open();
    const { page } = opened;
    const values = () =>
      Promise.all(
        ['User', 'Password', 'Token'].map((name) =>
          page.getByLabel(name, { exact: true }).inputValue(),
        ),
      );
    const fill = async () => {
      for (const name of ['User', 'Password', 'Token'])
        await page.getByLabel(name, { exact: true }).fill('secret');
    };
    await fill();
    await page.getByRole('button', { name: 'Forget' }).click();
    assert.deepEqual(await values(), ['', '', '']);
    await fill();
    await page.reload();
    await page.locator('details').first().waitFor();
    assert.deepEqual(await values(), ['', '', '']);
    assert.equal(await page.evaluate('localStorage.length + sessionStorage.length'), 0);
    assert.deepEqual(await page.context().cookies(), []);
  });

  test('wrong credentials get no token and a message', async () => {
    await using opened = await open();
    const { page } = opened;
    await page.getByLabel('User', { exact: true }).fill('admin');
    await page.getByRole('button', { name: 'Get a token' }).click();
    await page.getByText('No token: 401 Unauthorized').waitFor();
    assert.equal(await page.getByLabel('Token', { exact: true }).inputValue(), '');
  });

  test('a link to one route opens it', async () => {
    await using opened = await open({ path: '/docs#deleteUser' });
    const isOpen = await opened.page.locator('#deleteUser').getAttribute('open');
    assert.equal(isOpen, '');
  });

  test('it works under /docs/', async () => {
    await using slashed = await open({ path: '/docs/' });
    assert.match(await sendForm(await operation(slashed.page, 'GET /')), /^200 OK/);
  });

  for (const announced of [{ 'x-forwarded-prefix': '/a/b' }, {}]) {
    const how = 'x-forwarded-prefix' in announced ? 'announces' : 'does not announce';
    test(`8.2 it works behind a proxy that removes a prefix and ${how} it`, async () => {
      await using behind = await start({ TRUST_PROXY: 1 });
      const { port } = new URL(behind.url);
      const proxy = createServer((req, res) => {
        const path = /^\/a\/b(\/.*)$/.exec(req.url!)?.[1];
        if (path === undefined) return res.writeHead(404).end();
        const { method } = req;
        const headers = { ...req.headers, ...announced };
        const upstream = request({ port, host: '127.0.0.1', method, path, headers }, (answer) => {
          res.writeHead(answer.statusCode!, answer.rawHeaders);
          answer.pipe(res);
        });
        return req.pipe(upstream);
      }).listen(0, '127.0.0.1');
      await once(proxy, 'listening');
      const base = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}/a/b`;
      const page = await (await browser.newContext()).newPage();
      try {
        await page.goto(`${base}/docs`);
        const create = await operation(page, 'POST /users');
        assert.match(await sendForm(create), /^201 Created/);
        // The tag of the new user belongs to the path of the form, which has no prefix.
        const remove = await operation(page, 'DELETE /users/{id}');
        await remove.getByLabel('id', { exact: true }).fill('1');
        await remove.getByRole('button', { name: 'Use "1"' }).first().click();
        await remove.getByRole('button', { name: 'Copy as curl' }).click();
        const command = await bodyOf(remove).textContent();
        assert.ok(command?.startsWith(`curl -i -X DELETE '${base}/users/1' `), command ?? '');
        const { stdout } = await promisify(execFile)('bash', ['-c', command!]);
        assert.match(stdout, /^HTTP\/1\.1 200 /);
      } finally {
        await page.context().close();
        proxy.close();
        proxy.closeAllConnections();
      }
    });
  }

  test('it truncates a long response, and reports a request without a response', async () => {
    const page = await (await browser.newContext()).newPage();
    await page.goto(`${service.url}/docs`);
    const list = await operation(page, 'GET /users');
    const contentType = 'application/json';
    await page.route('**/users', (route) =>
      route.fulfill({ contentType, body: `[${'1,'.repeat(500_000)}1]` }),
    );
    assert.match(await sendForm(list), /^200 OK/);
    const text = (await bodyOf(list).textContent())!;
    assert.ok(text.length < 201_000);
    assert.match(text, /[1,]\n… and more, not shown here\.$/);
    await page.route('**/users', (route) => route.abort());
    await list.getByRole('button', { name: 'Send' }).click();
    await list.getByText(/^No response: /).waitFor();
    assert.equal(await bodyOf(list).isVisible(), false);
    await page.context().close();
  });

  test('Lighthouse scores at least 95, 100, 100 and 100 on mobile', async (context) => {
    const command = await install().catch((err) => String(err.message).split('\n')[0]!);
    if (!command.startsWith('/')) {
      context.skip(`Lighthouse cannot be installed: ${command}`);
      return;
    }
    // A busy machine lowers only the score for performance, so several runs are allowed.
    const reports: Report[] = [];
    do reports.push(await measure(command, `${service.url}/docs`, CHROMIUM!));
    while (reports.length < 6 && reports.at(-1)!.scores.performance! < 95);
    const { scores, findings } = reports.at(-1)!;
    const { performance, ...others } = scores;
    assert.deepEqual(
      others,
      { accessibility: 100, 'best-practices': 100, seo: 100 },
      `${findings}`,
    );
    assert.ok(performance! >= 95, `performance ${performance}: ${findings}`);
    assert.ok(!findings.some((one) => one.startsWith('cumulative-layout-shift')), `${findings}`);
  });

  for (const colorScheme of ['light', 'dark'] as const) {
    for (const width of [320, 390, 1280]) {
      test(`axe finds nothing in ${colorScheme} at ${width} px, and nothing overflows`, async () => {
        const [id] = await createUsers('Ada');
        await using opened = await open({
          bypassCSP: true,
          colorScheme,
          viewport: { width, height: 800 },
        });
        const { page } = opened;
        const patch = await operation(page, 'PATCH /users/{id}');
        await patch.getByLabel('id', { exact: true }).fill(String(id));
        await patch.getByLabel('body', { exact: true }).fill('{}');
        assert.match(await sendForm(patch), /^200 OK/);
        await page.evaluate(
          'for (const one of document.querySelectorAll("details")) one.open = true',
        );
        await page.addScriptTag({ content: AXE });
        const { violations, passes } = await page.evaluate<Part>('axe.run()');
        const found = violations.map(({ id: rule, nodes }: Part) => [rule, nodes[0].html]);
        assert.deepEqual(found, []);
        assert.ok(passes.some(({ id: rule }: Part) => rule === 'color-contrast'));
        const widest = await page.evaluate<number>('document.documentElement.scrollWidth');
        assert.equal(widest, width);
      });
    }
  }
});
