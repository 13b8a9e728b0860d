# The journey with the client from openapi-python-client. Prints it as JSON.
import json
import sys

from httpx import BasicAuth
from notes_and_users_client import AuthenticatedClient, Client
from notes_and_users_client.api.access import greet_caller, issue_token
from notes_and_users_client.api.users import create_user, list_users, patch_user
from notes_and_users_client.models import Credentials, UserChange, UserFields

url, user, password = sys.argv[1:]
anyone = Client(base_url=url)
token = issue_token.sync(client=anyone, body=Credentials(id=user, pw=password)).token
client = AuthenticatedClient(base_url=url, token=token)
basic = Client(base_url=url, httpx_args={"auth": BasicAuth(user, password)})

fields = UserFields(name="Ada", email="ada@example.com")
created = create_user.sync_detailed(client=client, body=fields)
ada, tag = created.parsed.id, created.headers["ETag"]
change = UserChange(name="Ada Lovelace")
patched = patch_user.sync_detailed(ada, client=client, body=change, if_match=tag)
stale = patch_user.sync_detailed(ada, client=client, body=change, if_match=tag)

create_user.sync(client=client, body=UserFields(name="Bob", email="bob@example.com"))
page = list_users.sync_detailed(client=client, limit=1, after=0)
journey = {
    "protected": greet_caller.sync(client=basic),
    "created": [created.status_code, created.parsed.email, tag],
    "patched": [patched.status_code, patched.parsed.name, patched.headers["ETag"]],
    "stale": [stale.status_code, stale.parsed],
    "page": [page.parsed[0].name, page.headers["Link"]],
}
print(json.dumps(journey))
