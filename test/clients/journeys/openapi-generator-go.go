// The journey with the Go client from openapi-generator. Prints it as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"

	"journey/openapi"
)

var after = regexp.MustCompile(`[?&]after=(\d+)`)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func refused(res *http.Response, err error) []any {
	if err == nil {
		return []any{res.StatusCode}
	}
	return []any{res.StatusCode, string(err.(*openapi.GenericOpenAPIError).Body())}
}

func main() {
	url, user, password := os.Args[1], os.Args[2], os.Args[3]
	configuration := openapi.NewConfiguration()
	configuration.Servers = openapi.ServerConfigurations{{URL: url}}
	api := openapi.NewAPIClient(configuration)
	anyone := context.Background()
	basic := context.WithValue(anyone, openapi.ContextBasicAuth,
		openapi.BasicAuth{UserName: user, Password: password})

	greeting, _, err := api.ServiceAPI.Greet(anyone).Execute()
	must(err)
	_, res, err := api.AccessAPI.IssueToken(anyone).
		Credentials(*openapi.NewCredentials(user, "wrong")).Execute()
	wrong := refused(res, err)
	_, res, err = api.NotesAPI.ReadNote(anyone).Execute()
	noNote := refused(res, err)
	token, _, err := api.AccessAPI.IssueToken(anyone).
		Credentials(*openapi.NewCredentials(user, password)).Execute()
	must(err)
	bearer := context.WithValue(anyone, openapi.ContextAccessToken, token.Token)
	note, _, err := api.NotesAPI.ReadNote(bearer).Execute()
	must(err)
	protected, _, err := api.AccessAPI.GreetCaller(basic).Execute()
	must(err)

	fields := *openapi.NewUserFields("Ada", "ada@example.com")
	ada, res, err := api.UsersAPI.CreateUser(bearer).UserFields(fields).Execute()
	must(err)
	tag := res.Header.Get("ETag")
	created := []any{res.StatusCode, ada.Email, tag}
	_, res, err = api.UsersAPI.CreateUser(bearer).UserFields(fields).Execute()
	taken := refused(res, err)
	for _, name := range []string{"Grace", "Alan"} {
		fields := *openapi.NewUserFields(name, strings.ToLower(name)+"@example.com")
		_, _, err := api.UsersAPI.CreateUser(bearer).UserFields(fields).Execute()
		must(err)
	}
	found, res, err := api.UsersAPI.ReadUser(bearer, ada.Id).Execute()
	must(err)
	read := []any{res.StatusCode, found.Name, res.Header.Get("ETag")}
	change := *openapi.NewUserChange()
	change.SetName("Ada Lovelace")
	changed, res, err := api.UsersAPI.PatchUser(bearer, ada.Id).
		UserChange(change).IfMatch(tag).Execute()
	must(err)
	patched := []any{res.StatusCode, changed.Name, res.Header.Get("ETag")}
	_, res, err = api.UsersAPI.PatchUser(bearer, ada.Id).UserChange(change).IfMatch(tag).Execute()
	stale := refused(res, err)

	pages := [][]string{}
	for next := api.UsersAPI.ListUsers(bearer).Limit(2); ; {
		page, res, err := next.Execute()
		must(err)
		names := []string{}
		for _, one := range page {
			names = append(names, one.Name)
		}
		pages = append(pages, names)
		following := after.FindStringSubmatch(res.Header.Get("Link"))
		if following == nil {
			break
		}
		id, err := strconv.ParseInt(following[1], 10, 64)
		must(err)
		next = next.After(id)
	}

	last, res, err := api.UsersAPI.DeleteUser(bearer, ada.Id).Execute()
	must(err)
	deleted := []any{res.StatusCode, last.Name}
	_, res, err = api.UsersAPI.ReadUser(bearer, ada.Id).Execute()
	must(json.NewEncoder(os.Stdout).Encode(map[string]any{
		"greeting": greeting, "wrong": wrong, "noNote": noNote, "note": note.Title,
		"protected": protected, "created": created, "taken": taken, "read": read,
		"patched": patched, "stale": stale, "pages": pages, "deleted": deleted,
		"gone": refused(res, err),
	}))
}
