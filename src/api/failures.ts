// Errors of the domain become responses here.
import * as http from '../http/reply.ts';
import { CallerLeft, EmailTaken, InvalidUser } from '../user.ts';

/** Returns the response to anything thrown. */
export function failureReply(err: unknown): http.Reply {
  if (err instanceof InvalidUser) return http.text(400, err.message);
  if (err instanceof EmailTaken) return http.text(400, 'Another user has this email.'); // 4.10
  if (err instanceof CallerLeft) return http.text(400, 'The client has left.'); // 4.17
  return http.errorReply(err);
}
