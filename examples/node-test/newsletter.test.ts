import assert from 'node:assert/strict';
import { test } from 'node:test';
import { start } from 'notes-users';
import { Newsletter } from './newsletter.ts';

test('subscribing twice makes one subscriber', async () => {
  await using service = await start();
  const newsletter = new Newsletter(service.url);
  const first = await newsletter.subscribe('Ada Lovelace', 'ada@example.com');
  assert.deepEqual(first, { id: 1, name: 'Ada Lovelace', email: 'ada@example.com' });
  assert.deepEqual(await newsletter.subscribe('Ada King', 'ada@example.com'), first);
});

test('a refused subscriber gets the reason of the service', async () => {
  await using service = await start();
  const newsletter = new Newsletter(service.url);
  await assert.rejects(
    newsletter.subscribe('', 'ada@example.com'),
    /^Error: name must be a string/,
  );
  assert.equal(await newsletter.find('ada@example.com'), undefined);
});

test('an unsubscribed email is not found and cannot unsubscribe again', async () => {
  await using service = await start();
  const newsletter = new Newsletter(service.url);
  const ada = await newsletter.subscribe('Ada Lovelace', 'ada@example.com');
  assert.equal(await newsletter.unsubscribe(ada), true);
  assert.equal(await newsletter.find(ada.email), undefined);
  assert.equal(await newsletter.unsubscribe(ada), false);
});

test('only the right password lets the editor read the issue', async () => {
  await using service = await start({ NOTE_CONTENTS: 'Spring is here.', AUTH_USER: 'editor' });
  const newsletter = new Newsletter(service.url);
  const { user, password } = service.credential;
  assert.equal(await newsletter.preview(user, password), 'Spring is here.');
  await assert.rejects(newsletter.preview(user, 'a guess'), /^Error: Unauthorized/);
});
