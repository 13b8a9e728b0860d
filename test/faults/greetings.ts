// Measures the event loop with greetings on a fixed schedule: a service that blocks
// for a second delays a hundred of them, not one.
import { Agent } from 'node:http';
import { type HttpResponse, request } from './http.ts';

/** Pause between two greetings. */
export const EVERY_MS = 10;

/** Greets during the action without waiting for responses. @returns the duration of each in ms */
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
