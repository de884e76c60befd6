# Adds a folder to the PATH of this person or of the machine, or removes it.
#
#     path.ps1 add|remove User|Machine FOLDER
param(
    [Parameter(Mandatory)][ValidateSet('add', 'remove')][string]$Verb,
    [Parameter(Mandatory)][ValidateSet('User', 'Machine')][string]$Scope,
    [Parameter(Mandatory)][string]$Folder
)
$ErrorActionPreference = 'Stop'
$key = if ($Scope -eq 'User') { 'HKCU:\Environment' } else { 'HKLM:\SYSTEM\CurrentControlSet\Control\Session Manager\Environment' }
# As it is written: [Environment] would write variables such as %USERPROFILE% out for good.
$path = (Get-Item $key).GetValue('Path', '', 'DoNotExpandEnvironmentNames')
$others = @($path -split ';' | Where-Object { $_ -and $_.TrimEnd('\') -ne $Folder.TrimEnd('\') })
$new = (@($others) + @(if ($Verb -eq 'add') { $Folder })) -join ';'
if ($new -ne $path) { Set-ItemProperty -Path $key -Name Path -Value $new -Type ExpandString }
