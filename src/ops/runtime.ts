// What node reports of its process: memory, CPU and how late the event loop is.
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { cpuUsage, memoryUsage } from 'node:process';
import { family } from './exposition.ts';

/** Pause between looks at the event loop: 10 ms cost 4 ms of CPU a second, 20 ms 3 (node 26). */
const DELAY_RESOLUTION_MS = 20;

/** Watches this process until it is closed. */
export class Runtime {
  readonly #delay = monitorEventLoopDelay({ resolution: DELAY_RESOLUTION_MS });

  constructor() {
    this.#delay.enable();
  }

  /** Memory and CPU now, delays since the call before. */
  families(): string[] {
    // 7.3
    const cpu = cpuUsage();
    return [
      family('process_memory_usage_bytes', 'gauge', 'Resident memory.', [
        ['', {}, memoryUsage.rss()],
      ]),
      family('process_cpu_time_seconds_total', 'counter', 'CPU time that the process has used.', [
        ['', { cpu_mode: 'user' }, cpu.user / 1e6],
        ['', { cpu_mode: 'system' }, cpu.system / 1e6],
      ]),
      ...this.#delays(),
    ];
  }

  /** Stops the timer that looks at the event loop. */
  close(): void {
    this.#delay.disable();
  }

  #delays(): string[] {
    const { max } = this.#delay;
    const delays = { p50: this.#delay.percentile(50), p99: this.#delay.percentile(99), max };
    this.#delay.reset();
    return Object.entries(delays).map(([which, nanoseconds]) => {
      // Node counts the pause between two looks with the delay.
      const seconds = Math.max(0, nanoseconds / 1e9 - DELAY_RESOLUTION_MS / 1e3);
      const help = `How late the event loop was since the scrape before: ${which}.`;
      return family(`nodejs_eventloop_delay_${which}_seconds`, 'gauge', help, [['', {}, seconds]]);
    });
  }
}
