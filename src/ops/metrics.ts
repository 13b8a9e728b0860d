// The metrics of the service (contract 7.3), with the names, labels and bounds of OpenTelemetry's
// semantic conventions, as Prometheus writes them. The number of series is bounded, because labels
// come from the route table and from lists in this file, never from a request.
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { VERSION } from '../version.ts';
import { family, Histogram, type Labels, type Sample } from './exposition.ts';
import { type Failure, OPERATIONS, type Operation } from './measured.ts';

/** Number of connections; undefined for a store without any. */
type Connections = () => { readonly used: number; readonly idle: number } | undefined;

// Upper bounds in seconds, as the conventions advise.
const REQUEST_BOUNDS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];
const OPERATION_BOUNDS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10];

const OTHER_METHOD = '_OTHER'; // A method that no route has, and bytes that are not a request.
const SYSTEMS = { sqlite: 'sqlite', postgres: 'postgresql' } as const; // db.system.name
const DELAY_RESOLUTION_MS = 20; // Costs 3 ms of CPU a second; 10 ms costs 4 (node 26).

/** Counts requests and store operations, and samples the event loop delay until it is closed. */
export class Metrics {
  readonly #system: string;
  readonly #connections: Connections;
  readonly #methods: readonly string[];
  /** By the index of the method. */
  readonly #active: Float64Array;
  /** By route, then by status and method in one number. A series is created at its first use. */
  readonly #requests: ReadonlyMap<string, Map<number, Histogram>>;
  readonly #operations: ReadonlyMap<Operation, Map<Failure | undefined, Histogram>>;
  readonly #delay = monitorEventLoopDelay({ resolution: DELAY_RESOLUTION_MS });

  /** @param routes the route table, by `METHOD /path` */
  constructor(routes: object, engine: keyof typeof SYSTEMS, connections: Connections) {
    this.#system = SYSTEMS[engine];
    this.#connections = connections;
    const table = Object.keys(routes).map((key) => key.split(' ') as [string, string]);
    const methods = table.map(([method]) => method);
    this.#methods = [...new Set([OTHER_METHOD, ...methods, 'HEAD', 'OPTIONS'])];
    this.#active = new Float64Array(this.#methods.length);
    const patterns = ['', ...table.map(([, pattern]) => pattern)];
    this.#requests = new Map(patterns.map((pattern) => [pattern, new Map()]));
    this.#operations = new Map(OPERATIONS.map((operation) => [operation, new Map()]));
    this.#delay.enable();
  }

  begin(method: string): void {
    this.#active[this.#indexOf(method)]!++;
  }

  /** @param request with the pattern of its route, empty if no route matched */
  end(request: { method: string; route: string; status: number }, ms: number): void {
    const { method, status } = request;
    const route = this.#requests.has(request.route) ? request.route : '';
    const series = this.#requests.get(route)!;
    const index = this.#indexOf(method);
    this.#active[index]!--;
    const key = status * this.#methods.length + index;
    let durations = series.get(key);
    if (durations === undefined) {
      durations = new Histogram(REQUEST_BOUNDS, {
        http_request_method: this.#methods[index],
        http_route: route || undefined,
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
    const active = this.#methods.map((method, i) => [method, this.#active[i]!]);
    const pool = this.#connections();
    const { user, system } = process.cpuUsage();
    // Node includes the interval in the delay.
    const seconds = (delayNs: number) => Math.max(0, delayNs / 1e9 - DELAY_RESOLUTION_MS / 1e3);
    // biome-ignore format: a table reads in columns
    const families = [
      family('http_server_request_duration_seconds', 'histogram', 'Time from the start of the processing of a request to its response.', samplesOf(this.#requests)),
      family('http_server_active_requests',          'gauge',     'Requests without a response yet.', by('http_request_method', Object.fromEntries(active))),
      family('db_client_operation_duration_seconds', 'histogram', 'Duration of a store operation, including the wait for a connection.', samplesOf(this.#operations)),
      pool && family('db_client_connections',        'gauge',     'Connections to the store.', by('db_client_connection_state', { idle: pool.idle, used: pool.used }, { db_system_name: this.#system })),
      family('process_memory_usage_bytes',           'gauge',     'Resident memory.', [['', {}, process.memoryUsage.rss()]]),
      family('process_cpu_time_seconds_total',       'counter',   'CPU time of the process.', by('cpu_mode', { user: user / 1e6, system: system / 1e6 })),
      family('nodejs_eventloop_delay_p50_seconds',   'gauge',     'Event loop delay since the previous scrape: p50.', [['', {}, seconds(this.#delay.percentile(50))]]),
      family('nodejs_eventloop_delay_p99_seconds',   'gauge',     'Event loop delay since the previous scrape: p99.', [['', {}, seconds(this.#delay.percentile(99))]]),
      family('nodejs_eventloop_delay_max_seconds',   'gauge',     'Event loop delay since the previous scrape: max.', [['', {}, seconds(this.#delay.max)]]),
      family('build_info',                           'gauge',     'Always 1, labelled with the version.', [['', { version: VERSION }, 1]]),
    ];
    this.#delay.reset();
    return families.join('');
  }

  close(): void {
    this.#delay.disable();
  }

  /** The index of `_OTHER` for a method that no route has. */
  #indexOf(method: string): number {
    return Math.max(0, this.#methods.indexOf(method));
  }
}

/** A sample for each value of a label. */
function by(label: string, values: Readonly<Record<string, number>>, rest?: Labels): Sample[] {
  return Object.entries(values).map(([value, count]) => ['', { ...rest, [label]: value }, count]);
}

function samplesOf(series: ReadonlyMap<unknown, ReadonlyMap<unknown, Histogram>>): Sample[] {
  const histograms = [...series.values()].flatMap((row) => [...row.values()]);
  return histograms.flatMap((one) => one.samples());
}
