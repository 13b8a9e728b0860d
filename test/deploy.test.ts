// deploy/ and compose.yaml. The dashboard and the alerts use metrics that the service has, in valid
// PromQL; alerts.test.ts shows when they fire. A client without a token can't change data.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { SETTINGS } from '../src/config.ts';
import { certificate, NO_OPENSSL } from './support/certificate.ts';
import { send } from './support/client.ts';
import { Page, promtool, WITHOUT_PROMTOOL } from './support/metrics.ts';
import { fileOf, newDatabase, ROOT, start } from './support/program.ts';
import { serve } from './support/service.ts';
import { until } from './support/until.ts';

const read = (path: string) => readFileSync(join(ROOT, path), 'utf8');

type Panel = { readonly targets?: readonly { readonly expr: string }[] };
const dashboard: { readonly panels: readonly Panel[] } = JSON.parse(read('deploy/grafana.json'));
const targets = dashboard.panels.flatMap(({ targets: own = [] }) => own);

/** The expressions of the alerts, of one or several lines. */
const alerts = [
  ...read('deploy/alerts.yaml').matchAll(/^ {8}expr: (?:\|\n((?: {10}.*\n)+)|(.*)\n)/gm),
].map(([, lines, line]) => lines ?? line!);

/** Replaces the dashboard's variables with values. */
function filledIn(expression: string): string {
  return expression.replaceAll('$__rate_interval', '5m').replaceAll('$', '');
}

/** Returns the metrics and labels of an expression: names that are not functions, operators or values. */
function namesIn(expression: string): string[] {
  const bare = expression.replace(/"[^"]*"|\[[^\]]*\]/g, ' ');
  const names = bare.match(/\b[a-z_]\w*\b(?!\s*\()/g) ?? [];
  return names.filter((name) => !['and', 'or', 'unless', 'sum', 'count'].includes(name));
}

test("every metric and label of the dashboard and the alerts is on the page, or Prometheus' own", {
  skip: NO_OPENSSL,
}, async () => {
  await using program = await serve({ DATABASE_URL: await newDatabase('postgres') });
  await send(`${program.url}/users/1`);
  // SQLite and TLS have metrics of their own.
  const DATABASE_URL = await newDatabase('sqlite');
  await using other = await start({ DATABASE_URL, ...certificate() });
  const { text } = await Page.of(other.adminUrl);
  let page = new Page(text);
  await until(async () => {
    page = new Page(text + (await Page.of(program.adminUrl)).text);
    return page.text.includes('nodejs_gc_duration_seconds_sum'); // after the first collection
  });
  assert.ok(targets.length >= 3 && alerts.length >= 3);
  // error_type appears with the store's first failure, as in test/contract/stores.test.ts.
  const own = namesIn([...page.values.keys()].join());
  const known = new Set(['up', 'job', 'instance', 'error_type', ...own]);
  for (const expression of [...targets.map(({ expr }) => filledIn(expr)), ...alerts]) {
    const names = namesIn(expression);
    assert.ok(names.length > 0, expression);
    for (const name of names) assert.ok(known.has(name), name);
  }
});

test('Prometheus can parse every expression of the dashboard', { skip: WITHOUT_PROMTOOL }, () => {
  const rules = targets.map(({ expr }, i) => ({ record: `a:${i}`, expr: filledIn(expr) }));
  const file = fileOf(JSON.stringify({ groups: [{ name: 'dashboard', rules }] }));
  promtool(['check', 'rules', file]);
});

for (const file of ['compose.yaml', 'deploy/litestream/compose.yaml']) {
  test(`in ${file} users need a token, and every port is on the loopback interface only`, () => {
    const text = read(file);
    const service = /^ {2}service:\n((?: {4}.*\n|\n)+)/m.exec(text)![1]!;
    assert.match(service, /^ {6}PROTECT_USERS: "true"/m);
    const ports = [...text.matchAll(/^ {6}- "?([\d.:]+:\d+)"?/gm)].map(([, port]) => port);
    assert.deepEqual(ports, ['127.0.0.1:3000:3000', '127.0.0.1:3001:3001']);
  });
}

test('Litestream runs as the user of the image, on its file, with the log left to it', () => {
  const text = read('deploy/litestream/compose.yaml');
  const [, user] = /^USER (.+)$/m.exec(read('Dockerfile'))!;
  assert.equal(/^ {4}user: "(.+)"/m.exec(text)?.[1], user);
  const url = /^ {6}DATABASE_URL: (\S+)/m.exec(text)![1]!;
  const [, path] = /^sqlite:(.+)\?wal_autocheckpoint=0$/.exec(url)!;
  const configuration = read('deploy/litestream/litestream.yml');
  assert.equal(/path: (.+)/.exec(configuration)?.[1], path);
  const version = /litestream:([\d.]+)/.exec(text)![1]!;
  const tools = read('.ci/tools');
  assert.match(tools, RegExp(`litestream@v${version}\\b`)); // The version of the tests.
});

test('in kubernetes.yaml users need a token, only one namespace reaches the admin port, and probes and stops are right', () => {
  const text = read('deploy/kubernetes.yaml');
  assert.match(text, / - name: PROTECT_USERS\s+value: "true"/);
  const admin = / - ports:\s+- port: admin\s+from:\s+- namespaceSelector:\s+matchLabels:\s+\S+ \w/;
  assert.match(text, admin);
  const probes = text.matchAll(/(\w+)Probe:\s+httpGet:\s+path: (\S+)\s+port: admin$/gm);
  const paths = { startup: '/live', liveness: '/live', readiness: '/ready' };
  assert.deepEqual(Object.fromEntries(Array.from(probes, ([, name, path]) => [name, path])), paths);
  const [, ready] = /path: \/ready\s+port: admin\s+\S+ \d+\s+timeoutSeconds: (\d+)/.exec(text)!;
  assert.ok(Number(ready) * 1000 > Number(SETTINGS.DATABASE_TIMEOUT_MS[2]), 'it says the cause');
  // The image sets DATABASE_URL (1.4), and lets node read only this folder.
  assert.match(text, / - name: DATABASE_URL\s+value: ""\n/);
  const [, folder] = /mountPath: (\/run\/secrets\/.+)/.exec(text)!;
  for (const [, path] of text.matchAll(/_FILE\s+value: (.+)/g))
    assert.equal(dirname(path!), folder);
  const restricted = ['runAsNonRoot: true', 'type: RuntimeDefault', 'drop: [ALL]'];
  for (const line of [...restricted, 'allowPrivilegeEscalation: false']) {
    assert.ok(text.includes(` ${line}\n`), line); // the "restricted" standard
  }
  const [, grace] = /terminationGracePeriodSeconds: (\d+)/.exec(text)!;
  const [, delayMs] = /SHUTDOWN_DELAY_MS\s+value: "(\d+)"/.exec(text)!;
  const [, , timeoutMs] = SETTINGS.SHUTDOWN_TIMEOUT_MS;
  assert.ok(Number(grace) * 1000 > Number(delayMs) + Number(timeoutMs), 'a stop can finish'); // 6.2
});
