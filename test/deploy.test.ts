// deploy/: the dashboard and the alerts ask for metrics that the service has, in a language that
// Prometheus understands, and the alerts are raised by what they are meant for.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { send } from './support/client.ts';
import { Page, promtool, WITHOUT_PROMTOOL } from './support/metrics.ts';
import { newDatabase, newFolder, type Program, start } from './support/program.ts';

const ROOT = join(import.meta.dirname, '..');
const ALERTS = join(ROOT, 'deploy/alerts.yaml');
const PROMTOOL = { skip: WITHOUT_PROMTOOL };

interface Panel {
  readonly id: number;
  readonly type: string;
  readonly title: string;
  readonly datasource?: object;
  readonly gridPos: Readonly<Record<'x' | 'y' | 'w' | 'h', number>>;
  readonly targets?: readonly { readonly datasource: object; readonly expr: string }[];
}

interface Variable {
  readonly name: string;
  readonly type: string;
  readonly definition?: string;
}

const dashboard = JSON.parse(readFileSync(join(ROOT, 'deploy/grafana.json'), 'utf8'));
const panels: readonly Panel[] = dashboard.panels;
const variables: readonly Variable[] = dashboard.templating.list;
const targets = panels.flatMap(({ targets: own = [] }) => own);

/** The expressions of the alerts, one line or several. */
const alerts = [
  ...readFileSync(ALERTS, 'utf8').matchAll(/^ {8}expr: (?:\|\n((?: {10}.*\n)+)|(.*)\n)/gm),
].map(([, lines, line]) => lines ?? line!);

/** What the dashboard's variables stand for. */
function filledIn(expression: string): string {
  return expression.replaceAll('$__rate_interval', '5m').replaceAll('$', '');
}

/** The metrics that an expression asks for: its names that are no label, function or operator. */
function metricsOf(expression: string): string[] {
  const bare = expression
    .replace(/\{[^}]*\}/g, ' ')
    .replace(/\[[^\]]*\]/g, ' ')
    .replace(/\b(?:by|without|on|ignoring)\s*\([^)]*\)/g, ' ');
  return [...bare.matchAll(/\b[a-z_:][a-z0-9_:]*\b(?!\s*\()/gi)]
    .map(([name]) => name)
    .filter((name) => !['sum', 'count', 'by', 'and', 'or', 'unless'].includes(name));
}

/** The labels that an expression names. */
function labelsOf(expression: string): string[] {
  const matched = [...expression.matchAll(/([a-z_]+)\s*(?:=~|!~|!=|=)\s*"/g)];
  const grouped = [...expression.matchAll(/\bby\s*\(([^)]*)\)/g)].flatMap(([, list]) =>
    list!.split(',').map((name) => ['', name.trim()]),
  );
  return [...matched, ...grouped].map(([, name]) => name!);
}

describe('names', () => {
  let program: Program;
  let page: Page;
  before(async () => {
    program = await start({
      DATABASE_URL: await newDatabase('postgres'),
      DATABASE_TIMEOUT_MS: '1000',
    });
    while ((await send(`${program.adminUrl}/ready`)).status !== 200);
    await send(`${program.url}/users/1`);
    page = await Page.of(program.adminUrl);
  });
  after(() => program?.[Symbol.asyncDispose]());

  test('the names in an expression are found', () => {
    const expression = 'sum by (a, b) (rate(x_count{c="d", e!=""}[5m])) / y:z > 0.5';
    assert.deepEqual(metricsOf(expression), ['x_count', 'y:z']);
    assert.deepEqual(labelsOf(expression), ['c', 'e', 'a', 'b']);
  });

  for (const { what, expressions } of [
    { what: 'the dashboard asks', expressions: targets.map(({ expr }) => filledIn(expr)) },
    { what: 'the alerts ask', expressions: alerts },
  ]) {
    test(`every metric that ${what} for is on the page`, () => {
      assert.ok(expressions.length >= 3);
      for (const expression of expressions) {
        const names = metricsOf(expression);
        assert.ok(names.length > 0, expression);
        for (const name of names) assert.ok(page.names.has(name), `${name} in ${expression}`);
      }
    });

    test(`every label that ${what} for is on the page, or Prometheus' own`, () => {
      for (const label of expressions.flatMap(labelsOf)) {
        // error_type comes with the store's first failure; test/contract/admin.test.ts has one.
        const isKnown = ['job', 'instance', 'error_type'].includes(label);
        assert.ok(isKnown || page.text.includes(`${label}="`), label);
      }
    });
  }

  test("the dashboard's variables ask for a metric of the page", () => {
    const queries = variables.filter(({ type }) => type === 'query');
    assert.ok(queries.length > 0);
    for (const { definition } of queries) {
      const [, name] = /^label_values\(([a-z_]+)/.exec(definition!)!;
      assert.ok(page.names.has(name!), definition!);
    }
  });

  test('every metric of the page is shown on the dashboard', () => {
    const shown = new Set(targets.flatMap(({ expr }) => metricsOf(filledIn(expr))));
    const hidden = [...page.names].filter((name) => !/_sum$/.test(name) && !shown.has(name));
    assert.deepEqual(hidden, []);
  });
});

describe('the dashboard', () => {
  test('has the shape of Grafana 10, and no id of another Grafana', () => {
    assert.equal(dashboard.schemaVersion, 38);
    assert.ok(dashboard.title && dashboard.uid);
    assert.ok(!('id' in dashboard) && !('__inputs' in dashboard));
  });

  test('every panel asks the data source that its reader picks', () => {
    assert.deepEqual(variables[0]?.name, 'datasource');
    assert.deepEqual(variables[0]?.type, 'datasource');
    const source = { type: 'prometheus', uid: '$' + '{datasource}' };
    for (const { datasource, type, targets: own = [] } of panels) {
      if (type === 'row') continue;
      assert.ok(own.length > 0);
      for (const each of [datasource, ...own.map((target) => target.datasource)]) {
        assert.deepEqual(each, source);
      }
    }
  });

  test('every variable in an expression is one of the dashboard, or of Grafana', () => {
    const names = ['__rate_interval', ...variables.map(({ name }) => name)];
    for (const { expr } of targets) {
      for (const [, name] of expr.matchAll(/\$\{?(\w+)/g)) assert.ok(names.includes(name!), expr);
    }
  });

  test('no two panels have one id or one place', () => {
    assert.equal(new Set(panels.map(({ id }) => id)).size, panels.length);
    const places = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
      Array.from({ length: w * h }, (_, i) => `${x + (i % w)} ${y + Math.floor(i / w)}`),
    );
    assert.equal(new Set(places).size, places.length);
    assert.ok(panels.every(({ gridPos: { x, w } }) => x + w <= 24));
  });

  test('Prometheus can read every expression', PROMTOOL, () => {
    const file = join(newFolder(), 'rules.yaml');
    const check = (expressions: readonly string[]) => {
      const rules = expressions.map((expr, i) => ({ record: `a:${i}`, expr: filledIn(expr) }));
      writeFileSync(file, JSON.stringify({ groups: [{ name: 'dashboard', rules }] }));
      return promtool(['check', 'rules', file]);
    };
    const { status, output } = check(targets.map(({ expr }) => expr));
    assert.equal(status, 0, output);
    assert.match(output, new RegExp(`SUCCESS: ${targets.length} rules found`));
    assert.notEqual(check(['sum(']).status, 0);
  });
});

describe('the alerts', () => {
  test('there are three', () => assert.equal(alerts.length, 3));

  test('promtool finds nothing wrong with them', PROMTOOL, () => {
    const { status, output } = promtool(['check', 'rules', ALERTS]);
    assert.equal(status, 0, output);
    assert.match(output, /SUCCESS: 3 rules found/);
  });

  test('what raises each, and what does not quite: ops/alerts.yaml', PROMTOOL, () => {
    const { status, output } = promtool(['test', 'rules', join(ROOT, 'test/ops/alerts.yaml')]);
    assert.equal(status, 0, output);
  });
});
