// Waits with a deadline, so that a test fails with a reason before the timeout of its file; and blocks the event loop.

/** Much longer than any condition takes on a busy machine. */
export const DEADLINE_MS = 120_000;

/**
 * Polls a condition until it holds.
 * @throws after the deadline with the source of the condition
 */
export async function until(
  condition: () => boolean | Promise<boolean>,
  deadlineMs = DEADLINE_MS,
): Promise<void> {
  const deadline = performance.now() + deadlineMs;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`never true: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

export function blockEventLoop(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}
