// Metrics of the process: memory, CPU and event loop delay.
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { cpuUsage, memoryUsage } from 'node:process';
import { family } from './exposition.ts';

/** Sampling interval. 10 ms costs 4 ms of CPU a second, 20 ms costs 3 (node 26). */
const DELAY_RESOLUTION_MS = 20;

/** Samples the event loop delay until it is closed. */
export class Runtime {
  readonly #delay = monitorEventLoopDelay({ resolution: DELAY_RESOLUTION_MS });

  constructor() {
    this.#delay.enable();
  }

  /** Returns memory and CPU now, and the delays since the previous call (7.3). */
  families(): string[] {
    const cpu = cpuUsage();
    return [
      family('process_memory_usage_bytes', 'gauge', 'Resident memory.', [
        ['', {}, memoryUsage.rss()],
      ]),
      family('process_cpu_time_seconds_total', 'counter', 'CPU time of the process.', [
        ['', { cpu_mode: 'user' }, cpu.user / 1e6],
        ['', { cpu_mode: 'system' }, cpu.system / 1e6],
      ]),
      ...this.#delays(),
    ];
  }

  close(): void {
    this.#delay.disable();
  }

  #delays(): string[] {
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
