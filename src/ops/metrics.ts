// The metrics of the service (contract 7.3), with the names, labels and bounds of OpenTelemetry's
// semantic conventions, as Prometheus writes them. The number of series is bounded, because labels
// come from the route table and from lists in this file, never from a request.
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { cpuUsage, memoryUsage } from 'node:process';
import { VERSION } from '../version.ts';
import { family, Histogram, type Sample } from './exposition.ts';
import { type Failure, OPERATIONS, type Operation } from './measured.ts';

/** Number of connections; undefined for a store without any. */
type Connections = () => { readonly used: number; readonly idle: number } | undefined;

// Upper bounds in seconds, as the conventions advise.
const REQUEST_BOUNDS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];
const OPERATION_BOUNDS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10];

/** For methods without a route, and for bytes that are not a request. */
const OTHER_METHOD = '_OTHER';

/** `db.system.name` of the conventions. */
const SYSTEMS = { sqlite: 'sqlite', postgres: 'postgresql' } as const;

/** Sampling interval. 10 ms costs 4 ms of CPU a second, 20 ms costs 3 (node 26). */
const DELAY_RESOLUTION_MS = 20;

/** Counts requests and store operations, and samples the event loop delay until it is closed. */
export class Metrics {
  readonly #system: string;
  readonly #connections: Connections;
  readonly #methods: readonly string[];
  readonly #methodIndex: ReadonlyMap<string, number>;
  readonly #active: Float64Array;
  // By route, then by status and method in one number. A series is created at its first use.
  readonly #requests: ReadonlyMap<string, Map<number, Histogram>>;
  readonly #operations: ReadonlyMap<Operation, Map<Failure | undefined, Histogram>>;
  readonly #delay = monitorEventLoopDelay({ resolution: DELAY_RESOLUTION_MS });

  /** @param routes the route table, by `METHOD /path` */
  constructor(routes: object, engine: keyof typeof SYSTEMS, connections: Connections) {
    this.#system = SYSTEMS[engine];
    this.#connections = connections;
    const table = Object.keys(routes).map((key) => key.split(' ') as [string, string]);
    const methods = table.map(([method]) => method);
    const patterns = table.map(([, pattern]) => pattern);
    this.#methods = [OTHER_METHOD, ...new Set([...methods, 'HEAD', 'OPTIONS'])];
    this.#methodIndex = new Map(this.#methods.map((method, i) => [method, i]));
    this.#requests = new Map(['', ...patterns].map((pattern) => [pattern, new Map()]));
    this.#operations = new Map(OPERATIONS.map((operation) => [operation, new Map()]));
    this.#active = new Float64Array(this.#methods.length);
    this.#delay.enable();
  }

  begin(method: string): void {
    this.#active[this.#methodIndex.get(method) ?? 0]!++;
  }

  /** @param request with the pattern of its route, empty if no route matched */
  end(request: { method: string; route: string; status: number }, ms: number): void {
    const { method, route, status } = request;
    const index = this.#methodIndex.get(method) ?? 0;
    this.#active[index]!--;
    const unknown = this.#requests.get('')!;
    const series = this.#requests.get(route) ?? unknown;
    const key = status * this.#methods.length + index;
    let durations = series.get(key);
    if (durations === undefined) {
      durations = new Histogram(REQUEST_BOUNDS, {
        http_request_method: this.#methods[index],
        http_route: series === unknown ? undefined : route,
        http_response_status_code: String(status),
      });
      series.set(key, durations);
    }
    durations.record(ms / 1000);
  }

  recordOperation(operation: Operation, ms: number, failure: Failure | undefined): void {
    const series = this.#operations.get(operation)!;
    let durations = series.get(failure);
    if (durations === undefined) {
      durations = new Histogram(OPERATION_BOUNDS, {
        db_system_name: this.#system,
        db_operation_name: operation,
        error_type: failure,
      });
      series.set(failure, durations);
    }
    durations.record(ms / 1000);
  }

  /** Returns all metrics in the text format. Event loop delays are those since the previous call. */
  exposition(): string {
    const db_system_name = this.#system;
    const connections = this.#connections();
    const cpu = cpuUsage();
    const families = [
      family(
        'http_server_request_duration_seconds',
        'histogram',
        'Time from the start of the processing of a request to its response.',
        samplesOf(this.#requests),
      ),
      family(
        'http_server_active_requests',
        'gauge',
        'Requests without a response yet.',
        this.#methods.map((method, i) => ['', { http_request_method: method }, this.#active[i]!]),
      ),
      family(
        'db_client_operation_duration_seconds',
        'histogram',
        'Duration of a store operation, including the wait for a connection.',
        samplesOf(this.#operations),
      ),
      connections &&
        family('db_client_connections', 'gauge', 'Connections to the store.', [
          ['', { db_system_name, db_client_connection_state: 'idle' }, connections.idle],
          ['', { db_system_name, db_client_connection_state: 'used' }, connections.used],
        ]),
      family('process_memory_usage_bytes', 'gauge', 'Resident memory.', [
        ['', {}, memoryUsage.rss()],
      ]),
      family('process_cpu_time_seconds_total', 'counter', 'CPU time of the process.', [
        ['', { cpu_mode: 'user' }, cpu.user / 1e6],
        ['', { cpu_mode: 'system' }, cpu.system / 1e6],
      ]),
      ...this.#delayFamilies(),
      family('build_info', 'gauge', 'Always 1, labelled with the version.', [
        ['', { version: VERSION }, 1],
      ]),
    ];
    return families.join('');
  }

  close(): void {
    this.#delay.disable();
  }

  #delayFamilies(): string[] {
    const { max } = this.#delay;
    const delays = { p50: this.#delay.percentile(50), p99: this.#delay.percentile(99), max };
    this.#delay.reset();
    return Object.entries(delays).map(([which, nanoseconds]) => {
      // Node includes the interval in the delay.
      const seconds = Math.max(0, nanoseconds / 1e9 - DELAY_RESOLUTION_MS / 1e3);
      const help = `Event loop delay since the previous scrape: ${which}.`;
      return family(`nodejs_eventloop_delay_${which}_seconds`, 'gauge', help, [['', {}, seconds]]);
    });
  }
}

function samplesOf(series: ReadonlyMap<unknown, ReadonlyMap<unknown, Histogram>>): Sample[] {
  const histograms = [...series.values()].flatMap((row) => [...row.values()]);
  return histograms.flatMap((one) => one.samples());
}
