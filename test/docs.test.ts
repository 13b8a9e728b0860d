// The page of GET /docs in a browser (contract 8.2): its contents, one journey, hostile names, and
// accessibility. Needs Chromium; CHROMIUM can have its path.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { userInfo } from 'node:os';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { type Browser, chromium, type Locator, type Page } from 'playwright-core';
import { start } from '../src/start.ts';
import { find } from './support/daemon.ts';
import { OPERATIONS } from './support/openapi.ts';
import { create } from './support/service.ts';

const CHROMIUM = process.env.CHROMIUM ?? find('chromium');
const PASSWORD = 'correct: hörse';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const OPEN_ALL = 'for (const one of document.querySelectorAll("details")) one.open = true';

/** A part of the OpenAPI document. */
// biome-ignore lint/suspicious/noExplicitAny: other tests check the document's shape
type Part = any;

type Options = Parameters<Browser['newContext']>[0] & { path?: string };

const skip = CHROMIUM === undefined && 'no chromium is installed, and CHROMIUM names none';

describe('the page in a browser', { skip, timeout: 900_000 }, () => {
  let browser: Browser;
  let service: Awaited<ReturnType<typeof start>>;

  before(async () => {
    service = await start({ AUTH_PASSWORD: PASSWORD });
    // Chromium's sandbox refuses to run as root.
    const chromiumSandbox = userInfo().uid !== 0;
    browser = await chromium.launch({ executablePath: CHROMIUM!, chromiumSandbox });
  });
  after(async () => {
    await browser?.close();
    await service.close();
  });

  /** Opens the page in its own context. Disposing it fails if the page did something forbidden. */
  async function open(options: Options = {}) {
    const context = await browser.newContext(options);
    const page = await context.newPage();
    // A proxy removes this prefix.
    await page.route('**/a/b/**', (route) =>
      route.continue({ url: route.request().url().replace('/a/b/', '/') }),
    );
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

  /** Opens the form of an operation with the mouse. */
  async function operation(page: Page, name: string): Promise<Locator> {
    const form = page.getByRole('form', { name, exact: true, includeHidden: true });
    await page.locator('details', { has: form }).locator('summary').click();
    return form;
  }

  /** Sends a form; returns the status line that it shows. */
  async function sendForm(form: Locator): Promise<string> {
    await form.getByRole('button', { name: 'Send' }).click();
    const status = form.getByRole('status').filter({ hasText: /^(\d{3}|No complete response)/ });
    return (await status.textContent()) ?? '';
  }

  /** Runs the command that a form copies; returns the status line and the body that it prints. */
  async function runCopied(page: Page, form: Locator): Promise<(string | undefined)[]> {
    await form.getByRole('button', { name: 'Copy as curl' }).click();
    await form.getByText(/^Copied\./).waitFor();
    const command = await page.evaluate<string>('navigator.clipboard.readText()');
    // The call is asynchronous, because the service runs in this process.
    const { stdout } = await promisify(execFile)('bash', ['-c', command]);
    const [head = '', body = ''] = stdout.split('\r\n\r\n');
    return [head.split('\r\n')[0], body];
  }

  const bodyOf = (form: Locator) => form.getByRole('region', { name: 'Response body' });
  const headersOf = (form: Locator) => form.getByRole('region', { name: 'Response headers' });

  test('it shows every operation, with its parameters, fields, media types, responses and headers', async () => {
    await using opened = await open({ path: '/docs#showDocs' });
    const { page } = opened;
    await page.evaluate('location.hash = "patchUser"');
    await page.locator('#showDocs[open]').waitFor();
    await page.locator('#patchUser[open]').waitFor();
    await page.locator('#intro').getByText('HEAD works on every route').waitFor();
    const textOf = (id: unknown) => page.locator(`details[id="${id}"]`).textContent();
    for (const { method, path, part } of OPERATIONS) {
      assert.ok((await textOf(part.operationId))?.startsWith(method + path), path);
    }
    const labels = await page.locator('#patchUser label').allTextContents();
    assert.equal(labels.join(), 'id,If-Match,If-None-Match,X-Request-Id,Content-Type,body');
    const patch =
      /merge-patch\+json.*\{ name: string, email: string.*200.*ETag.*415.*Accept-Patch/s;
    assert.match((await textOf('patchUser'))!, patch);
    const docs = /200.*text\/html; charset=utf-8.*Content-Encoding.*br or gzip.*304/s;
    assert.match((await textOf('showDocs'))!, docs);
    assert.equal(await page.locator('details').count(), OPERATIONS.length);
    // A screen reader reads neither the arrow nor a list without items.
    await page.evaluate(OPEN_ALL);
    assert.doesNotMatch(await page.locator('main').ariaSnapshot(), /›|- list$/m);
  });

  test('8.2 a journey: token, note, a conditional change, a copied command, a hostile name, and nothing is kept', async () => {
    await using opened = await open({ permissions: ['clipboard-read', 'clipboard-write'] });
    const { page } = opened;
    const field = (place: Page | Locator, name: string) => place.getByLabel(name, { exact: true });
    const note = await operation(page, 'GET /notes');
    assert.match(await sendForm(note), /^401 Unauthorized in \d+ ms$/);
    await field(page, 'User').fill('admin');
    await field(page, 'Password').fill(PASSWORD);
    await page.keyboard.press('Enter');
    await page.getByText('Token received.').waitFor();
    await note.getByRole('button', { name: 'Send' }).click();
    await note.getByText(/^200 OK/).waitFor();
    assert.equal(JSON.parse((await bodyOf(note).textContent())!).title, 'Welcome');
    assert.match(await sendForm(await operation(page, 'GET /protected')), /^200 OK/);

    const email = `o'neil+&=#%20${crypto.randomUUID()}@example.com`;
    const create = await operation(page, 'POST /users');
    await field(create, 'body').fill(JSON.stringify({ name: 'Ada Lovelace', email }));
    assert.match(await sendForm(create), /^201 Created/);
    const { id } = JSON.parse((await bodyOf(create).textContent())!);
    assert.match((await headersOf(create).textContent())!, RegExp(`^location: /users/${id}$`, 'm'));

    const patch = await operation(page, 'PATCH /users/{id}');
    await field(patch, 'id').fill(String(id));
    await field(patch, 'If-Match').fill('"7"');
    await field(patch, 'body').fill('{"name": "Ada King"}');
    await field(patch, 'Content-Type').selectOption('application/merge-patch+json'); // keeps the body
    assert.match(await sendForm(patch), /^412 Precondition Failed/);
    await field(patch, 'If-Match').fill('"1"');
    await patch.getByRole('button', { name: 'Send' }).click();
    await patch.getByText(/^200 OK/).waitFor();
    assert.match((await headersOf(patch).textContent())!, /^etag: "\d+-2"$/m);

    // The command has the same effect in a shell as the form.
    const list = await operation(page, 'GET /users');
    await field(list, 'email').fill(email);
    const found = [{ id, name: 'Ada King', email }];
    assert.match(await sendForm(list), /^200 OK/);
    assert.deepEqual(JSON.parse((await bodyOf(list).textContent())!), found);
    assert.deepEqual(JSON.parse((await runCopied(page, list))[1]!), found);
    const name = `<img src=x onerror=alert(1)><script>alert(2)</script> @'"\\ $HOME $(id) \`id\` !! \n\t%s ';id;' 😀`;
    await field(create, 'body').fill(`\n${JSON.stringify({ name, email: `2${email}` }, null, 2)}`);
    const [status, created] = await runCopied(page, create);
    assert.equal(status, 'HTTP/1.1 201 Created');
    assert.equal(JSON.parse(created!).name, name);
    await field(create, 'body').fill('@file'); // of which curl must not send the contents
    assert.equal((await runCopied(page, create))[1], 'The body is not valid JSON.');

    const read = await operation(page, 'GET /users/{id}');
    await field(read, 'id').fill(String(JSON.parse(created!).id));
    assert.match(await sendForm(read), /^200 OK/);
    assert.equal(JSON.parse((await bodyOf(read).textContent())!).name, name);
    assert.equal(await page.locator('img, script').count(), 1); // its own script
    // Without its id, a path is no request, and with `..` another one.
    for (const id of ['', '..']) {
      await field(read, 'id').fill(id);
      await read.getByRole('button', { name: 'Copy as curl' }).click();
      assert.equal(await page.evaluate('document.activeElement.id'), 'readUser-id');
      assert.match((await read.getByRole('status').textContent())!, /^200 OK/);
    }

    const secrets = () =>
      Promise.all(['User', 'Password', 'Token'].map((label) => field(page, label).inputValue()));
    assert.ok((await secrets()).every((value) => value !== ''));
    await page.getByRole('button', { name: 'Forget' }).click();
    assert.deepEqual(await secrets(), ['', '', '']);
    await field(page, 'Token').fill('secret');
    await page.reload();
    await page.locator('details').first().waitFor();
    assert.deepEqual(await secrets(), ['', '', '']);
    assert.equal(await page.evaluate('localStorage.length + sessionStorage.length'), 0);
    assert.deepEqual(await page.context().cookies(), []);
    assert.equal(await page.locator('textarea:not([autocomplete="off"])').count(), 0); // Firefox
  });

  test('8.2 it works behind a proxy that removes a prefix', async () => {
    await using opened = await open({ path: '/a/b/docs' });
    const { page } = opened;
    const { id } = await create(service);
    const remove = await operation(page, 'DELETE /users/{id}');
    await remove.getByLabel('id', { exact: true }).fill(String(id));
    await remove.getByRole('button', { name: 'Copy as curl' }).click();
    const command = (await bodyOf(remove).textContent())!;
    assert.equal(command, `curl -i -X DELETE '${service.url}/a/b/users/${id}'`);
    assert.match(await sendForm(remove), /^200 OK/);
  });

  for (const colorScheme of ['light', 'dark'] as const) {
    for (const width of [320, 1280]) {
      test(`axe finds nothing in ${colorScheme} at ${width} px, and nothing overflows or covers the routes`, async () => {
        const { id } = await create(service);
        const viewport = { width, height: 800 };
        await using opened = await open({ bypassCSP: true, colorScheme, viewport });
        const { page } = opened;
        const patch = await operation(page, 'PATCH /users/{id}');
        await patch.getByLabel('id', { exact: true }).fill(String(id));
        await patch.getByLabel('body', { exact: true }).fill('{}');
        assert.match(await sendForm(patch), /^200 OK/);
        await page.evaluate(OPEN_ALL);
        await page.addScriptTag({ content: AXE });
        const { violations, passes } = await page.evaluate<Part>('axe.run()');
        const found = violations.map(({ id: rule, nodes }: Part) => [rule, nodes[0].html]);
        assert.deepEqual(found, []);
        assert.ok(passes.some(({ id: rule }: Part) => rule === 'color-contrast'));
        const widest = await page.evaluate<number>('document.documentElement.scrollWidth');
        assert.equal(widest, width);
        const covers = `(([aside, main]) => aside.bottom > main.top && aside.right > main.left)(
          ['aside', 'main'].map((name) => document.querySelector(name).getBoundingClientRect()))`;
        await page.evaluate('scrollTo(0, 3000)');
        assert.equal(await page.evaluate(covers), false);
      });
    }
  }
});
