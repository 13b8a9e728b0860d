// deploy/alerts.yaml: each alert fires, and is silent just below its limit.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { promtool, WITHOUT_PROMTOOL } from './support/metrics.ts';
import { fileOf, ROOT } from './support/program.ts';

const FILE = join(ROOT, 'deploy/alerts.yaml');
const RULES = readFileSync(FILE, 'utf8');

const REQUESTS = 'http_server_request_duration_seconds_count http_response_status_code=';
const CALLS = 'db_client_operation_duration_seconds_count db_operation_name=';
const CLOSED = 'http_server_connections_closed_total reason=';

/**
 * Series, each as `instance metric label=value …` with its values minute by minute; and alerts that are silent, or fire
 * with these labels and this summary, each as `minute name`.
 */
const CASES: Record<string, [series: Record<string, string>, alerts: Record<string, string[]>]> = {
  '2 of 100 requests return 500; other 5xx and other jobs do not count': [
    {
      [`a ${REQUESTS}200`]: '0+98x30',
      [`b ${REQUESTS}500`]: '0+2x30',
      [`c ${REQUESTS}500 job=other`]: '0+100x30',
    },
    { '5 Failing': [], '6 Failing': ['', '2% of the requests of notes-users return 500'] },
  ],
  '1 of 100 requests returns 500, the others 505, a client error': [
    { [`a ${REQUESTS}505`]: '0+99x30', [`a ${REQUESTS}500`]: '0+1x30' },
    { '30 Failing': [] },
  ],
  'every request fails, first 15 in five minutes, then more': [
    {
      [`a ${REQUESTS}500`]: '0+3x30 90+4x30',
      [`a ${CALLS}find error_type=timeout`]: '0+3x30 90+4x30',
    },
    {
      '30 Failing': [],
      '30 StoreFailing': [],
      '45 Failing': ['', '100% of the requests of notes-users return 500'],
      '45 StoreFailing': ['instance=a db_operation_name=find', '100% of the find calls fail on a'],
    },
  ],
  'one replica of two does not respond to a scrape, and comes back': [
    { 'a up': '1x30', 'b up': '1x4 0x6 1x20', 'c up job=other': '0x30' },
    {
      '6 Down': [],
      '7 Down': ['instance=b', 'b does not respond to Prometheus'],
      '12 Down': [],
      '12 Absent': [],
    },
  ],
  'Prometheus finds no replica at all': [
    { 'a up': '1x4 _x26', 'c up job=other': '1x30' },
    { '3 Absent': [], '20 Absent': ['', 'Prometheus has no target of the job notes-users'] },
  ],
  'one replica restarts three times in a quarter of an hour, another twice': [
    {
      'a process_start_time_seconds': '100x3 400x3 700x3 1000x30',
      'b process_start_time_seconds': '100x3 400x6 1000x30',
    },
    {
      '11 Restarting': [],
      '13 Restarting': ['instance=a', 'a has restarted 3 times in 15 minutes'],
    },
  ],
  'one replica has lost its store, and only /ready calls it; on another one call in ten fails': [
    {
      [`a ${CALLS}ping`]: '0+12x30',
      [`b ${CALLS}ping`]: '0+12x10 120x20',
      [`b ${CALLS}ping error_type=unavailable`]: '_x10 1+12x20',
      [`c ${CALLS}find`]: '0+90x30',
      [`c ${CALLS}find error_type=timeout`]: '0+10x30',
    },
    {
      '12 StoreFailing': [],
      '20 StoreFailing': ['instance=b db_operation_name=ping', '100% of the ping calls fail on b'],
    },
  ],
  'one event loop is late, another almost, a third for a short time': [
    {
      'a nodejs_eventloop_delay_p99_seconds': '0.6x30',
      'b nodejs_eventloop_delay_p99_seconds': '0.5x30',
      'c nodejs_eventloop_delay_p99_seconds': '0.1x5 3x8 0.1x17',
    },
    { '9 Overloaded': [], '12 Overloaded': ['instance=a', 'The event loop of a is 600ms late'] },
  ],
  'one replica makes room for a while, another once, a third closes for other reasons': [
    {
      [`a ${CLOSED}room`]: '0+10x30',
      [`b ${CLOSED}room`]: '0x10 5x20',
      [`c ${CLOSED}client`]: '0+10x30',
    },
    {
      '4 Full': [],
      '20 Full': ['instance=a reason=room', 'a closes connections to make room for others'],
    },
  ],
  'one certificate expires in less than a week, another later': [
    {
      'a tls_certificate_not_after_timestamp_seconds': '608400x180',
      'b tls_certificate_not_after_timestamp_seconds': '615600x180',
    },
    {
      '120 CertificateExpires': [],
      '122 CertificateExpires': ['instance=a', 'The certificate of a expires in 6d 22h 58m 0s'],
    },
  ],
};

const labelsOf = (pairs: readonly string[]) =>
  Object.fromEntries(pairs.map((pair) => pair.split('='))) as Record<string, string>;

/** Returns the series in Prometheus' notation. */
function seriesOf(text: string): string {
  const [instance, metric, ...labels] = text.split(' ');
  const all = labelsOf(['job=notes-users', `instance=${instance}`, ...labels]);
  return `${metric}{${Object.entries(all).map(([name, value]) => `${name}="${value}"`)}}`;
}

/** Returns what promtool expects of an alert. The page has its severity and its description. */
function firing(alertname: string, [labels, summary]: string[]) {
  const text = RULES.split(`alert: ${alertname}\n`)[1]!;
  const [, severity] = /severity: (.*)/.exec(text)!;
  const [, description] = /description: (.*)/.exec(text)!;
  const all = [`severity=${severity}`, 'job=notes-users', ...(labels ? labels.split(' ') : [])];
  return { exp_labels: labelsOf(all), exp_annotations: { summary, description } };
}

test('each alert fires, and not just below its limit', { skip: WITHOUT_PROMTOOL }, () => {
  const tests = Object.entries(CASES).map(([name, [series, alerts]]) => ({
    ...{ name, interval: '1m' },
    input_series: Object.entries(series).map(([text, values]) => ({
      series: seriesOf(text),
      values,
    })),
    alert_rule_test: Object.entries(alerts).map(([when, expected]) => {
      const [minute, own] = when.split(' ');
      const alertname = `NotesUsers${own}`;
      const exp_alerts = expected.length === 0 ? [] : [firing(alertname, expected)];
      return { eval_time: `${minute}m`, alertname, exp_alerts };
    }),
  }));
  const file = fileOf(JSON.stringify({ rule_files: [FILE], evaluation_interval: '1m', tests }));
  promtool(['test', 'rules', file]);
});
