// The metrics of the service (contract 7.3) in Prometheus' text format 0.0.4, with the names, labels and
// bounds of OpenTelemetry's semantic conventions. The number of series is bounded, because labels come
// from the route table and from fixed lists, never from a request.
import { readdirSync, readFileSync } from 'node:fs';
import { monitorEventLoopDelay, PerformanceObserver, performance } from 'node:perf_hooks';
import { CallerLeft, EmailTaken, StoreUnavailable, type UserStore } from '../user.ts';
import { VERSION } from '../version.js';

/** The connections of the API, as its listener counts them. */
export interface Usage {
  readonly maxConnections: number;
  readonly heldBytes: number;
  readonly budgetBytes: number;
  readonly states: Readonly<Record<string, number>>;
  readonly closed: Readonly<Record<string, number>>; // by reason
}

/** What a store reports, by engine. */
interface StoreState {
  readonly connections?: Readonly<Record<'used' | 'idle' | 'limit' | 'waiting', number>>;
  readonly walBytes?: number | undefined;
}

// Upper bounds in seconds, as the conventions advise.
const REQUEST_BOUNDS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];
const OPERATION_BOUNDS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10];
const GC_BOUNDS = [0.001, 0.01, 0.1, 1, 2, 5];

const REQUEST_LABELS = ['http_request_method', 'http_route', 'http_response_status_code'];
const OPERATION_LABELS = ['db_system_name', 'db_operation_name', 'error_type'];

const OTHER_METHOD = '_OTHER'; // A method that no route has, and bytes that are not a request.
const SYSTEMS = { sqlite: 'sqlite', postgres: 'postgresql' } as const; // db.system.name
const OPERATIONS = ['create', 'find', 'findByEmail', 'list', 'update', 'delete', 'ping'] as const;
// By NODE_PERFORMANCE_GC_*, as in prom-client
const GC_KINDS: Labels = { 1: 'minor', 4: 'major', 8: 'incremental', 16: 'weakcb' };
const DELAY_RESOLUTION_MS = 20; // Costs 3 ms of CPU a second; 10 ms costs 4 (node 26).

/** Counts requests and store operations, and samples the event loop delay until it is closed. */
export class Metrics {
  readonly #system: string;
  readonly #store: StoreState;
  readonly #active: Map<string, number>; // by method
  readonly #requests = new Histograms(REQUEST_BOUNDS, REQUEST_LABELS);
  readonly #operations = new Histograms(OPERATION_BOUNDS, OPERATION_LABELS);
  readonly #collections = new Histograms(GC_BOUNDS, ['kind']);
  // Costs about 20 µs for each collection; 20,000 requests of `GET /` cause 50 (node 26).
  readonly #observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const { kind } = (entry as PerformanceEntry & { detail: { kind: number } }).detail;
      this.#collections.record(entry.duration / 1000, GC_KINDS[kind] ?? 'other');
    }
  });
  readonly #delay = monitorEventLoopDelay({ resolution: DELAY_RESOLUTION_MS });

  /** @param routes the route table, by `METHOD /path` */
  constructor(routes: object, engine: keyof typeof SYSTEMS, store: StoreState) {
    this.#system = SYSTEMS[engine];
    this.#store = store;
    const methods = Object.keys(routes).map((key) => key.split(' ', 1)[0]!);
    this.#active = new Map([OTHER_METHOD, ...methods, 'HEAD', 'OPTIONS'].map((name) => [name, 0]));
    this.#delay.enable();
    this.#observer.observe({ type: 'gc' });
  }

  begin(method: string): void {
    this.#addActive(method, 1);
  }

  end(request: { method: string; route: string; status: number }, ms: number): void {
    const method = this.#addActive(request.method, -1);
    this.#requests.record(ms / 1000, method, request.route, String(request.status));
  }

  /** Returns a store that passes each operation on, and records its duration and failure. */
  measure(store: UserStore, timeoutMs: number, now: () => number): UserStore {
    const calls = OPERATIONS.map((operation) => {
      const method = store[operation] as (...args: unknown[]) => Promise<unknown>;
      const call: typeof method = (...args) => {
        const startMs = now();
        const called = method.apply(store, args);
        const record = (err?: unknown) => {
          const ms = now() - startMs;
          const failure = failureOf(err, ms >= timeoutMs);
          this.#operations.record(ms / 1000, this.#system, operation, failure);
        };
        called.then(() => record(), record);
        return called; // The caller gets the store's own promise, so it doesn't wait for the recording.
      };
      return [operation, call];
    });
    const measured: Pick<UserStore, (typeof OPERATIONS)[number]> = Object.fromEntries(calls);
    return measured;
  }

  /**
   * Returns all metrics. Event loop delays are those since the previous call.
   * @param notAfterMs the Unix time at which the certificate expires
   */
  exposition(api: Usage, droppedLines: number, notAfterMs?: number): string {
    const { connections: pool } = this.#store;
    const { user, system } = process.cpuUsage();
    const { rss, heapTotal, heapUsed, external } = process.memoryUsage();
    // Node includes the interval in the delay.
    const seconds = (delayNs: number) => Math.max(0, delayNs / 1e9 - DELAY_RESOLUTION_MS / 1e3);
    // biome-ignore format: a table reads in columns
    const families = [
      family('http_server_request_duration_seconds', 'histogram', 'Time from the start of the processing of a request to its response.', this.#requests.samples()),
      family('http_server_active_requests',          'gauge',     'Requests without a response yet.', by('http_request_method', Object.fromEntries(this.#active))),
      family('db_client_operation_duration_seconds', 'histogram', 'Duration of a store operation, including the wait for a connection.', this.#operations.samples()),
      family('http_server_connections',              'gauge',     'Connections of the API.', by('state', api.states)),
      family('http_server_connections_limit',        'gauge',     'Their maximum, unless the charges reach their limit first.', api.maxConnections),
      family('http_server_connections_closed_total', 'counter',   'Closed connections of the API.', by('reason', api.closed)),
      family('http_server_charges_bytes',            'gauge',     'What the connections of the API are charged.', api.heldBytes),
      family('http_server_charges_limit_bytes',      'gauge',     'The budget of the charges.', api.budgetBytes),
      family('tls_certificate_not_after_timestamp_seconds', 'gauge', 'Unix time at which the certificate expires.', notAfterMs && notAfterMs / 1e3),
      family('db_client_connections',                'gauge',     'Connections to the store.', pool && by('db_client_connection_state', { idle: pool.idle, used: pool.used }, { db_system_name: this.#system })),
      family('db_client_connection_max',             'gauge',     'Their maximum.', pool?.limit),
      family('db_client_connection_pending_requests', 'gauge',    'Store operations that wait for a connection.', pool?.waiting),
      family('sqlite_wal_size_bytes',                'gauge',     'Size of the write-ahead log of SQLite.', readable(() => this.#store.walBytes)),
      family('log_dropped_lines_total',              'counter',   'Log lines that were not written.', droppedLines),
      family('process_memory_usage_bytes',           'gauge',     'Resident memory, including the program file of node, which a container hardly counts.', rss),
      family('process_cpu_time_seconds_total',       'counter',   'CPU time of the process.', by('cpu_mode', { user: user / 1e6, system: system / 1e6 })),
      family('process_start_time_seconds',           'gauge',     'Unix time at which the process started.', performance.timeOrigin / 1e3),
      family('process_open_fds',                     'gauge',     'Open file descriptors.', readable(openFiles)),
      family('process_max_fds',                      'gauge',     'Their maximum.', maxFiles()),
      family('nodejs_heap_size_used_bytes',          'gauge',     'Memory in use in the heap of V8.', heapUsed),
      family('nodejs_heap_size_total_bytes',         'gauge',     'Size of the heap of V8.', heapTotal),
      family('nodejs_external_memory_bytes',         'gauge',     'Memory that objects in the heap hold outside it.', external),
      family('nodejs_gc_duration_seconds',           'histogram', 'Garbage collections.', this.#collections.samples()),
      family('nodejs_eventloop_delay_p50_seconds',   'gauge',     'Event loop delay since the previous scrape: p50.', seconds(this.#delay.percentile(50))),
      family('nodejs_eventloop_delay_p99_seconds',   'gauge',     'Event loop delay since the previous scrape: p99.', seconds(this.#delay.percentile(99))),
      family('nodejs_eventloop_delay_max_seconds',   'gauge',     'Event loop delay since the previous scrape: max.', seconds(this.#delay.max)),
      family('build_info',                           'gauge',     'Always 1, labelled with the version.', [['', { version: VERSION }, 1]]),
    ];
    this.#delay.reset();
    return families.join('');
  }

  [Symbol.dispose](): void {
    this.#delay.disable();
    this.#observer.disconnect();
  }

  /** Returns the label of the method. */
  #addActive(method: string, change: 1 | -1): string {
    const label = this.#active.has(method) ? method : OTHER_METHOD;
    this.#active.set(label, this.#active.get(label)! + change);
    return label;
  }
}

/** Returns undefined if the system doesn't have it, or a permission is missing. */
function readable<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

const openFiles = () => readdirSync('/proc/self/fd').length - 1; // without the folder's own descriptor

/** Returns how many descriptors the process may open, on Linux. */
export function maxFiles(): number | undefined {
  const limits = readable(() => readFileSync('/proc/self/limits', 'utf8')) ?? '';
  const text = /^Max open files +([0-9]+)/m.exec(limits)?.[1];
  return text === undefined ? undefined : Number(text);
}

/** Returns `error_type`; empty if the operation did not fail. */
function failureOf(err: unknown, isLate: boolean): string {
  if (err === undefined || err instanceof EmailTaken || err instanceof CallerLeft) return '';
  if (!(err instanceof StoreUnavailable)) return '_OTHER';
  return isLate ? 'timeout' : 'unavailable';
}

type Labels = Readonly<Record<string, string>>; // by name; an empty one is omitted, which means the same
/** One line. The suffix, such as `_bucket`, follows the name of the family. */
type Sample = readonly [suffix: string, labels: Labels, value: number];

/** Histograms of one name and their bounds, ascending. A series is created at its first use. */
export class Histograms {
  readonly #bounds: readonly number[];
  readonly #labels: readonly string[];
  // One count more than bounds: the last one is of the values above them.
  readonly #series = new Map<string, { labels: Labels; counts: Float64Array; sum: number }>();

  constructor(bounds: readonly number[], labels: readonly string[]) {
    this.#bounds = bounds;
    this.#labels = labels;
  }

  record(value: number, ...labelValues: readonly string[]): void {
    const bounds = this.#bounds;
    const key = labelValues.join(' ');
    let series = this.#series.get(key);
    if (series === undefined) {
      const labels = Object.fromEntries(this.#labels.map((name, i) => [name, labelValues[i]!]));
      series = { labels, counts: new Float64Array(bounds.length + 1), sum: 0 };
      this.#series.set(key, series);
    }
    let i = 0;
    while (i < bounds.length && value > bounds[i]!) i++;
    series.counts[i]!++;
    series.sum += value;
  }

  /** Returns the cumulative buckets, sum and count of each series. */
  samples(): Sample[] {
    return [...this.#series.values()].flatMap(({ labels, counts, sum }): Sample[] => {
      let count = 0;
      const buckets = [...this.#bounds, '+Inf'].map((bound, i): Sample => {
        count += counts[i]!;
        return ['_bucket', { ...labels, le: String(bound) }, count];
      });
      return [...buckets, ['_sum', labels, sum], ['_count', labels, count]];
    });
  }
}

function by(label: string, values: Readonly<Record<string, number>>, rest?: Labels): Sample[] {
  return Object.entries(values).map(([value, count]) => ['', { ...rest, [label]: value }, count]);
}

/** Formats all samples of one name, or one value without labels. No two samples have the same labels. */
export function family(name: string, type: string, help: string, content?: Sample[] | number) {
  if (content === undefined) return '';
  const samples: Sample[] = typeof content === 'number' ? [['', {}, content]] : content;
  const lines = samples.map(([suffix, labels, value]) => {
    const pairs = Object.entries(labels).filter(([, text]) => text !== '');
    // JSON escapes quotes, backslashes and line feeds like this format.
    const list = pairs.map(([label, text]) => `${label}=${JSON.stringify(text)}`).join();
    return `${name}${suffix}${list && `{${list}}`} ${value}\n`;
  });
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join('')}`;
}
