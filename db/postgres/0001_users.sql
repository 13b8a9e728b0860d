create table users (
  -- an identity's sequence never gives an id twice, not even after its user was deleted
  id bigint generated always as identity primary key, -- 5.4
  name text not null check (char_length(name) between 1 and 100),
  -- collate "C": compared byte by byte, exactly
  email text collate "C" not null unique check (char_length(email) between 3 and 100), -- 4.10
  -- grows with every change; the entity tag of the HTTP API
  version bigint not null default 1
);
