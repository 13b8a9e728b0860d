// Every error becomes a plain-text response here. Details of an internal error go to the log only.
import { STATUS_CODES } from 'node:http';
import { CallerLeft, EmailTaken, InvalidUser } from '../user.ts';
import { type Reply, text } from './reply.ts';

export class HttpError extends Error {
  override readonly name = 'HttpError';
  readonly status: number;
  readonly headers: readonly string[]; // a flat list of names and values

  /** `message` is one sentence for the client (2.1). Default: the status text (RFC 9110 §15). */
  constructor(status: number, message = STATUS_CODES[status], headers: readonly string[] = []) {
    super(message);
    this.status = status;
    this.headers = headers;
  }
}

/** Returns the response to anything thrown. */
export function errorReply(err: unknown): Reply {
  if (err instanceof HttpError) return text(err.status, err.message, err.headers);
  if (err instanceof InvalidUser) return text(400, err.message);
  if (err instanceof EmailTaken) return text(400, 'Another user has this email.'); // 4.10
  if (err instanceof CallerLeft) return text(400, 'The client has left.'); // 4.17
  return text(500, 'Internal Server Error'); // 2.1, 2.9
}
