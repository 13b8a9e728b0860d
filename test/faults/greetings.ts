// Measures how long the event loop is blocked, with requests on a fixed schedule. If it blocks for
// a second, a hundred requests are late, not one.
import { Agent } from 'node:http';
import { type HttpResponse, request } from './http.ts';

/** Pause between two greetings. */
export const EVERY_MS = 10;

/** Sends requests on schedule during the action. @returns the duration of each in ms */
export async function greet(url: string, action: () => Promise<void>): Promise<number[]> {
  const agent = new Agent({ keepAlive: true });
  const responses: Promise<HttpResponse>[] = [];
  const timer = setInterval(() => responses.push(request(agent, url)), EVERY_MS);
  try {
    await action();
    clearInterval(timer);
    return (await Promise.all(responses)).map(({ ms }) => ms);
  } finally {
    clearInterval(timer);
    agent.destroy();
  }
}
