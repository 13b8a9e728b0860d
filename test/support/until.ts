// Waits with a deadline, so that a test fails with a reason before the timeout of its file.

/** Much longer than any condition takes on a busy machine. */
export const DEADLINE_MS = 120_000;

/**
 * Polls a condition until it holds.
 * @throws after DEADLINE_MS with the source of the condition
 */
export async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = performance.now() + DEADLINE_MS;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`never true: ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
}
