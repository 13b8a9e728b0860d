// Whether the event loop is free: greetings on a fixed schedule, so that a service that stands
// still for a second has a hundred of them late, and not one.
import { Agent } from 'node:http';
import { type Answer, request } from './http.ts';

/** Pause between two greetings. */
export const EVERY_MS = 10;

/** Greets while the action lasts, not waiting for answers. @returns how long each took, in ms */
export async function greet(url: string, action: () => Promise<void>): Promise<number[]> {
  const agent = new Agent({ keepAlive: true });
  const answers: Promise<Answer>[] = [];
  const timer = setInterval(() => answers.push(request(agent, url)), EVERY_MS);
  try {
    await action();
    clearInterval(timer);
    return (await Promise.all(answers)).map(({ ms }) => ms);
  } finally {
    clearInterval(timer);
    agent.destroy();
  }
}
