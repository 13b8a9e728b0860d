# The journey with the Python client from openapi-generator. Prints it as JSON.
import json
import sys

import openapi_client as api

url, user, password = sys.argv[1:]
configuration = api.Configuration(host=url, username=user, password=password)
client = api.ApiClient(configuration)
access, users = api.AccessApi(client), api.UsersApi(client)
configuration.access_token = access.issue_token(api.Credentials(id=user, pw=password)).token

fields = api.UserFields(name="Ada", email="ada@example.com")
created = users.create_user_with_http_info(fields)
ada, tag = created.data.id, created.headers["ETag"]
change = api.UserChange(name="Ada Lovelace")
patched = users.patch_user_with_http_info(ada, change, if_match=tag)
try:
    users.patch_user(ada, change, if_match=tag)
except api.ApiException as error:
    stale = [error.status, error.body]

users.create_user(api.UserFields(name="Bob", email="bob@example.com"))
page = users.list_users_with_http_info(limit=1, after=0)
journey = {
    "protected": access.greet_caller(),
    "created": [created.status_code, created.data.email, tag],
    "patched": [patched.status_code, patched.data.name, patched.headers["ETag"]],
    "stale": stale,
    "page": [page.data[0].name, page.headers["Link"]],
}
print(json.dumps(journey))
