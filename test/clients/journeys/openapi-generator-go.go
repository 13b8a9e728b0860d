// The journey with the Go client from openapi-generator. Prints it as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"journey/openapi"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	url, user, password := os.Args[1], os.Args[2], os.Args[3]
	configuration := openapi.NewConfiguration()
	configuration.Servers = openapi.ServerConfigurations{{URL: url}}
	api := openapi.NewAPIClient(configuration)
	anyone := context.Background()
	basic := context.WithValue(anyone, openapi.ContextBasicAuth,
		openapi.BasicAuth{UserName: user, Password: password})

	token, _, err := api.AccessAPI.IssueToken(anyone).
		Credentials(*openapi.NewCredentials(user, password)).Execute()
	must(err)
	bearer := context.WithValue(anyone, openapi.ContextAccessToken, token.Token)
	protected, _, err := api.AccessAPI.GreetCaller(basic).Execute()
	must(err)

	fields := *openapi.NewUserFields("Ada", "ada@example.com")
	ada, res, err := api.UsersAPI.CreateUser(bearer).UserFields(fields).Execute()
	must(err)
	tag := res.Header.Get("ETag")
	created := []any{res.StatusCode, ada.Email, tag}
	change := *openapi.NewUserChange()
	change.SetName("Ada Lovelace")
	changed, res, err := api.UsersAPI.PatchUser(bearer, ada.Id).
		UserChange(change).IfMatch(tag).Execute()
	must(err)
	patched := []any{res.StatusCode, changed.Name, res.Header.Get("ETag")}
	_, res, err = api.UsersAPI.PatchUser(bearer, ada.Id).UserChange(change).IfMatch(tag).Execute()
	stale := []any{res.StatusCode, string(err.(*openapi.GenericOpenAPIError).Body())}

	fields = *openapi.NewUserFields("Bob", "bob@example.com")
	_, _, err = api.UsersAPI.CreateUser(bearer).UserFields(fields).Execute()
	must(err)
	users, res, err := api.UsersAPI.ListUsers(bearer).Limit(1).After(0).Execute()
	must(err)
	page := []any{users[0].Name, res.Header.Get("Link")}

	must(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"protected": protected, "created": created, "patched": patched, "stale": stale, "page": page,
	}))
}
